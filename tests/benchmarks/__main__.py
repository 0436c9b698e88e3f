"""All benchmarks: `make bench`."""

from tests.benchmarks import search

if __name__ == "__main__":
    search.main()
