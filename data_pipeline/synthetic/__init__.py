"""A seeded synthetic company: its mail, and questions that the mail answers.

`world.py` plans stories and chatter; a story (`stories.py`) writes mails on a stage (`stage.py`).
"""
