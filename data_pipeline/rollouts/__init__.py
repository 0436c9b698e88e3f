"""The episodes of a run as a data set that others load."""
