"""The parts of a message, a module each; `parse.py` puts them together.

    plain.py      well-formed messages of one text, split the fast way
    headers.py    the header block, mended and decoded        addresses.py  who wrote to whom
    body.py       one text out of a tree of MIME parts        html.py       HTML as text
    text.py       bytes as text, whatever charset they claim  dates.py      when it was sent

Mail is hostile: what can't be read is guessed or left out, and what would take `email` or a
layout too long is read more simply. Knows nothing of sources, filters and the database.
"""
