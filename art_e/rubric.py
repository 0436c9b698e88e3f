"""What happened in an episode, as facts. The episode writes them; nobody guesses them later."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rubric:
    """The facts of one episode; what is not known of a question without a gold answer is None.

    `found_gold` and `read_gold`: every gold mail came up in a search, was read.
    `sources_correct`: every gold mail was cited. `num_sources` counts what was cited,
    mail or not. `effort` is turns plus calls beyond the first in each message.
    `tool_calls` counts all calls, wrong and refused ones too; `unparseable_calls`
    include messages without any call. The token counts are sums over the turns.
    """

    max_turns: int
    answerable: bool | None = None
    num_gold_sources: int | None = None
    answered: bool = False
    abstained: bool = False
    sources_correct: bool | None = None
    num_sources: int = 0
    found_gold: bool | None = None
    read_gold: bool | None = None
    turns: int = 0
    effort: int = 0
    tool_calls: int = 0
    invalid_reads: int = 0
    unparseable_calls: int = 0
    unknown_tool_calls: int = 0
    bad_argument_calls: int = 0
    lost_to_format: bool = False
    ran_out_of_turns: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
