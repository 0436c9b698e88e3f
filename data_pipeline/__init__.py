"""Raw mail in, an inbox file out; and questions about it whose answers are known to be right.

    sources -> parse.py (and its parts, `mail`) -> batch.py on all cores -> build.py -> inbox file

`ingest.py` is the whole of that line: sources give raw messages, one module a format; a batch is
parsed, filtered and tokenised by workers; copies are merged in SQL, and the file moves into place
when it is whole. Every message read is stored, a copy, filtered or quarantined with its reason.

    golden      questions: written by a model or imported, filtered, verified, split, reviewed
    synthetic   a made-up company's mail, with planted facts and the questions that they answer
    rollouts    the episodes of a run as a data set that others load

What leaves for others is written whole or not at all (`export_folder.py`), and what is in it
that somebody may mind is counted (`contents.py`). Knows nothing of training.
"""
