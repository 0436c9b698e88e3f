"""A seeded company whose mail is made up, and the questions that it answers."""
