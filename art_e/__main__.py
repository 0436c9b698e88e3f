"""`python -m art_e` is `art-e`."""

from art_e.cli.main import run

if __name__ == "__main__":
    run()
