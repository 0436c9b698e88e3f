"""`art-e` as a launcher starts it, with the stand-in for vLLM below TRL.

torchrun --standalone --nproc-per-node 2 -m tests.training.launched train grpo ...
"""

import pytest

from art_e.cli.main import run
from tests import fake_vllm

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        fake_vllm.install(patch)
        run()
