"""The stories that plant facts: one module a kind, each with `tell(stage)`.

`tell` writes the story's mails and plants its questions, of all five kinds.
"""

from collections.abc import Callable

from data_pipeline.synthetic.stage import Stage
from data_pipeline.synthetic.stories import (
    approval,
    interview,
    invoice,
    outage,
    project,
    relocation,
    travel,
)

TELL: dict[str, Callable[[Stage], None]] = {
    "relocation": relocation.tell,
    "travel": travel.tell,
    "invoice": invoice.tell,
    "interview": interview.tell,
    "approval": approval.tell,
    "project": project.tell,
    "outage": outage.tell,
}
