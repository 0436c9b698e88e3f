"""The episodes of a run as a data set that others load; see `art-e runs export`.

`shared.py` takes paths and keys out of an episode, `columns.py` makes it a row and a row an
episode again, `export.py` writes the folder, and `card.py` what it says of itself.
"""
