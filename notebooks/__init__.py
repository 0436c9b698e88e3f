"""The walk through the whole: five notebooks, what they share, and what executes them."""
