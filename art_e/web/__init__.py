"""The page of `art-e web`: its server, and what the browser gets."""
