"""The experiments that the README's figures come from; see `python -m training.experiments`."""
