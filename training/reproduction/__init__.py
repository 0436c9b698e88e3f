"""`art-e reproduce`: the chain of the talk, from mail to report, in steps that are done once.

`profile.py` reads a TOML file of `profiles`, `chain.py` is the script of all steps, and `report.py`
writes the page.
"""
