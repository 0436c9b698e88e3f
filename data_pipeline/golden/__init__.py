"""The golden set: questions about inboxes whose answers are known to be right.

    generate | import  ->  filter  ->  verify  ->  split  ->  review  ->  export

Each step reads the rows of the one before and writes its own file (`golden_set.py`); a row that it
drops is kept with the reason."""
