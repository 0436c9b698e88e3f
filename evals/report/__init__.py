"""The report of runs: one self-contained page, and its charts as pictures."""
