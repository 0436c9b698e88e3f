"""Where mail comes from: one module a format, found by looking (`detect.py`), opened by `open.py`.

Each reads as a stream and gives a message with a `source` that is the same wherever the same mail
lies. `files.py` and `tar.py` are what they share. Knows nothing of what a message says.
"""
