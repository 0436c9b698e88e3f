"""ART-E: an agent that answers questions about an inbox by searching and reading it.

    agent.py     the loop: a policy writes a message, the episode runs it and answers
    episode.py   an episode with its rubric; trajectory.py records it
    tools.py     search, read and answer, as a model sees them
    models       what a --model is, and the policies: a hosted model, a local one, or none
    inbox        the file that is searched
    cli, web     the command line, the MCP server and the web page

The same `Episode` answers users, is measured by `evals`, and is trained on by `training`."""

import os

# Set before they are imported, this keeps trl, huggingface_hub and vLLM from reporting their use.
os.environ.setdefault("DO_NOT_TRACK", "1")

__version__ = "0.1.0"
