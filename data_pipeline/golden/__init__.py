"""The golden set: questions about inboxes, with answers that are known to be right.

    generate | import  ->  filter  ->  verify  ->  split  ->  review  ->  export

Each step reads the rows of the one before and writes its own file (`golden_set.py`); rows that it
drops are stored with the reason."""
