"""A seeded company whose mail is made up, and the questions that it answers.

    python -m data_pipeline.synthetic --size 5000 --seed 0 --out DIR

`world.py` is the way in. A plan (`plan.py`) says how many stories are told; a story (`stories`)
plays on a stage (`stage.py`) with people (`people.py`, `names.py`), writes letters (`letters.py`)
in words of its own (`wording.py`, `spoken.py`, `phrases`), and notes what it planted
(`ledger.py`). Chatter (`chatter.py`) is all other mail. `rfc822.py` makes bytes of it.
"""
