"""A seeded company whose mail is made up, and the questions that it answers.

`world.py` plans stories and chatter; a story (`stories.py`) writes mails on a stage (`stage.py`).
"""
