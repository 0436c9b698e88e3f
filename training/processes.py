"""The processes that train one model together, each on a GPU, or on a CPU.

    accelerate launch --config_file training/launch/ddp.yaml -m art_e train grpo ...

accelerate or torchrun starts them, and stops all when one ends; without a launcher there is one.
They exchange a few objects per step, by the same collective calls in the same order; trainers
synchronize the weights."""

import contextlib
import ctypes
import logging
import os
import platform
import re
import signal
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
# Timeout of collective calls: longer than any call of a judge, outages included.
TIMEOUT = timedelta(minutes=60)
# RuntimeErrors of gloo and NCCL after a peer has ended.
_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|NCCL.*(abort|remote)|gloo", re.I)


@dataclass(frozen=True, slots=True)
class Processes:
    """The number of processes, and this one's index."""

    index: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        return self.index == 0

    def gather(self, values: Sequence[T]) -> list[T]:
        if self.count == 1:
            return list(values)
        from accelerate.utils import gather_object

        return list(gather_object(list(values)))

    def from_first(self, value: T) -> T:
        return self.gather([value])[0]

    def share(self, values: Sequence[T]) -> Sequence[T]:
        """Return this process's part of `values`; `gather` joins the parts again, in order."""
        first, end = (place * len(values) // self.count for place in (self.index, self.index + 1))
        return values[first:end]


ALONE = Processes()


def sharded() -> bool:
    """Return True if accelerate shards weights over the processes (FSDP, ZeRO-3)."""
    get = os.environ.get
    return get("ACCELERATE_USE_FSDP") == "true" or (
        get("ACCELERATE_USE_DEEPSPEED") == "true" and get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    )


def launched() -> Processes:
    """Join the processes that a launcher started; without a launcher, `ALONE`."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    import torch
    from accelerate import PartialState

    on_cpu = torch.accelerator.current_accelerator(check_available=True) is None
    state = PartialState(cpu=on_cpu, timeout=TIMEOUT)
    return Processes(int(state.process_index), int(state.num_processes))


class PausedError(Exception):
    """The reason why a run pauses. If it `passes`, the same command can resume later: time was up,
    or a provider was down. If not, the user has to change something first: a limit, a key."""

    def __init__(self, reason: str, *, passes: bool = True) -> None:
        super().__init__(reason)
        self.passes = passes


class LostError(Exception):
    """Another process of the run has ended early."""


@contextlib.contextmanager
def joined() -> Iterator[Processes]:
    """Join the launched processes while the block runs. Raises `LostError` if another one ended: if
    a collective call fails, or on SIGTERM, with which launchers stop the remaining processes."""
    processes = launched()
    if processes.count == 1:
        yield processes
        return
    from torch import distributed

    def end(*_: object) -> None:
        raise LostError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield processes
        distributed.destroy_process_group()
    except (distributed.DistError, RuntimeError) as error:
        if not isinstance(error, distributed.DistError) and not _LOST.search(str(error)):
            raise
        raise LostError from None
    finally:
        signal.signal(signal.SIGTERM, before)


def keep_memory() -> None:
    """Make glibc's malloc reuse freed blocks up to 1 GiB: every step allocates the same ones."""
    if platform.libc_ver()[0] == "glibc":
        for threshold in (-3, -1):  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
            ctypes.CDLL(None).mallopt(threshold, 1 << 30)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the trainers' libraries: a warning of TRL quotes a rollout, which is mail."""
    for name in ("trl", "transformers", "accelerate", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
