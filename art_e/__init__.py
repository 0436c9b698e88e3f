"""ART-E: an agent that answers questions about an inbox by searching and reading it.

    agent.py     the loop: a policy says something, the episode runs it and answers
    episode.py   one question being worked on; rubric.py and trajectory.py hold what happened
    tools.py     search, read and answer, as a model sees them
    policies     what chooses the next message: a hosted model, one in this process, or none
    inbox        the file that is searched
    cli, mcp.py  the ways in

The same `Episode` answers users, is measured by `evals`, and is trained on by `training`. This
package knows nothing of any of these; only `cli` calls them, when a command needs them.
"""

__version__ = "0.1.0"
