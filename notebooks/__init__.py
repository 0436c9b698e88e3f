"""Five notebooks that walk through the project, their helpers, and what executes them."""
