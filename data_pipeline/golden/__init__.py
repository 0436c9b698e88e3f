"""The golden set: questions about inboxes whose answers are known to be right.

    generate | import  ->  filter  ->  verify  ->  split  ->  review  ->  export

Each step reads the set's folder (`golden_set.py`) and writes it anew; a row that a step
drops stays in it with the reason. Models are asked through `asking.py`.
"""
