"""Judging answers, measuring models, reporting.

benchmark.py   asks models a set of questions, and has each answer judged
judges         rules, shared words, or a model; measured on answers that people labelled
figures        scored.py (an episode and its verdicts), metrics.py, statistics.py
hacking.py     whether a score is earned by answering
report         one page of all of it"""
