"""Judges answers, measures models, and reports on them.

benchmark.py   asks models a set of questions, and has each answer judged
judges         rules, shared words, or a model; measured on answers that people labelled
figures        scored.py (an episode and its verdicts), metrics.py, statistics.py
hacking.py     detects scores that were not earned by answering
report         one page of all of it"""
