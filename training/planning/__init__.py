"""What a recipe takes before it is run, memory, hours and money; see `art-e train plan`.

    geometry.py   a model's shape      footprint.py  bytes on a GPU, line by line
    workload.py   tokens of episodes   pace.py       seconds, from operations and bytes
    cards.py      GPUs by name         fees.py       what judges are paid

`plan.py` puts them together, `remedies.py` looks for changes with which a plan fits, and
`reported.py` reads what a run took, to stand beside it. What is counted and what is assumed is
said line by line. It needs no GPU, and for Qwen2.5 neither torch nor a network.
"""
