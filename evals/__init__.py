"""Judging answers, measuring models, reporting.

    benchmark.py   puts a set of questions to models, and has every answer judged
    judges         judge.py and f1_judge.py (rules), llm_judge.py (a model), by name: judges.py
    labelled       answers that a person has labelled; agreement.py holds judges against them
    figures        scored.py (an episode and its verdicts), metrics.py, paired.py, intervals.py
    hacking.py     whether a score is earned by answering
    report         one page of all of it

What text says, as far as rules can tell, is in claims.py and what it stands on (normalise.py,
dates.py, names.py, words.py, spoken.py). Episodes are those of `art_e`: what is measured
is what answers users.
"""
