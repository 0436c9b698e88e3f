"""`art-e reproduce`: the chain of the talk as units of work that are done once.

    profile.py    what is reproduced: a TOML file of `profiles`
    units.py      the chain: which units there are, what each needs, and the commands it runs
    unit.py       a unit, and the key that says whether it has been done
    work.py       doing a unit: `art-e` commands as processes, and a server beside them
    choice.py     which prompt and which seed are chosen, by validation
    expected.py   time, money and disk before anything is run
    figures.py    the talk's figures, published against ours
    page.py       the report

A unit is kept in a folder named by the hash of all that decides what is in it.
"""
