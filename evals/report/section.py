"""A part of the report that whoever builds it brings along: tables, charts and lines of text.

Knows nothing of what it is about.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evals.report.charts import Chart
from evals.report.tables import Table


class Captioned(NamedTuple):
    """A table with its heading, and what is said below it."""

    heading: str
    table: Table
    notes: Sequence[str] = ()


class Section(NamedTuple):
    """A part of the page. `name` is its anchor and begins the names of no other chart; `lead`
    stands under the title; a section that is `apart` begins a new page where it is printed."""

    name: str
    title: str
    lead: Sequence[str]
    tables: Sequence[Captioned] = ()
    charts: Sequence[Chart] = ()
    apart: bool = False
