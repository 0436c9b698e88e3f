"""`art-e golden`: make a set of questions whose answers are known to be right."""

import typer

from art_e.cli import (
    golden_export,
    golden_filter,
    golden_generate,
    golden_import,
    golden_review,
    golden_split,
    golden_stats,
    golden_verify,
)

app = typer.Typer(
    help="Make a set of questions with known answers, and check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# In the order in which they are used.
golden_generate.register(app)
golden_import.register(app)
golden_filter.register(app)
golden_verify.register(app)
golden_split.register(app)
golden_stats.register(app)
golden_review.register(app)
golden_export.register(app)
