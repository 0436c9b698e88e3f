"""`art-e reproduce`: the chain of the talk, from mail to report, in stages that are done once.

`profile.py` reads a TOML file of `profiles`, `chain.py` is the script of all stages, `forecast.py`
says what it takes before anything runs, and `report.py` writes the page.
"""
