"""The processes that train one model together, each on a GPU of its own, or on a CPU.

    accelerate launch --config_file training/launch/ddp.yaml -m art_e train grpo ...

accelerate or torchrun starts them and ends all when one ends; without such a launcher there is
this one alone. What one has found the others learn here: a few objects a step, never weights,
which are the trainer's. Every process has to make the same calls in the same order, or the
others wait for it. Knows nothing of training.
"""

import contextlib
import ctypes
import logging
import os
import platform
import re
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TypeVar

T = TypeVar("T")

# How long one waits for the others before it takes them for lost: longer than any judge takes.
PATIENCE = timedelta(minutes=30)

# What gloo and NCCL say in a RuntimeError where a peer is gone.
_LOST = re.compile(r"closed by peer|reset by peer|Broken pipe|NCCL.*(abort|remote)|gloo", re.I)


@dataclass(frozen=True, slots=True)
class Processes:
    """How many there are, and which of them this is."""

    index: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes the run's folder and talks to the user."""
        return self.index == 0

    def gather(self, mine: Sequence[T]) -> list[T]:
        """What each of them has, one process after the other; the same in all of them."""
        if self.count == 1:
            return list(mine)
        from torch import distributed

        of_each: list[list[T]] = [[] for _ in range(self.count)]
        distributed.all_gather_object(of_each, list(mine))
        return list(chain.from_iterable(of_each))

    def told(self, value: T) -> T:
        """What the one that leads gave as `value`."""
        if self.count == 1:
            return value
        from torch import distributed

        held = [value]
        distributed.broadcast_object_list(held, src=0)
        return held[0]

    def wait(self) -> None:
        """Go on when all have come here."""
        self.gather([None])

    def share(self, values: Sequence[T]) -> Sequence[T]:
        """The part of `values` that is this one's; `gather_shares` puts them together."""
        return values[self.index :: self.count]

    def gather_shares(self, mine: Sequence[T], total: int) -> list[T]:
        """All of `total` values in their order, of which `mine` are for those of `share`."""
        places = range(self.index, total, self.count)
        placed = self.gather(list(zip(places, mine, strict=True)))
        return [value for _, value in sorted(placed, key=lambda each: each[0])]


ALONE = Processes()


def sharded() -> bool:
    """Whether accelerate was told to spread weights over the processes: FSDP, or ZeRO-3."""
    told = os.environ.get
    return told("ACCELERATE_USE_FSDP") == "true" or (
        told("ACCELERATE_USE_DEEPSPEED") == "true"
        and told("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    )


def launched() -> Processes:
    """The processes that a launcher started, joined with each other, or this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    import torch
    from accelerate import PartialState

    on_cpu = torch.accelerator.current_accelerator(check_available=True) is None
    state = PartialState(cpu=on_cpu, timeout=PATIENCE)
    return Processes(int(state.process_index), int(state.num_processes))


class LostError(Exception):
    """Another process of the run has ended before its time. The message is one line."""


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that were launched, for as long as the block runs.

    Raises `LostError` where another one has ended: by what collectives say then, or by the
    signal with which launchers end those that are left.
    """
    processes = launched()
    if processes.count == 1:
        yield processes
        return
    from torch import distributed

    before = signal.signal(signal.SIGTERM, _ended)
    try:
        yield processes
        # Left to the interpreter's end, threads of gloo may abort the process there.
        distributed.destroy_process_group()
    except (distributed.DistError, RuntimeError) as error:
        if not isinstance(error, distributed.DistError) and not _LOST.search(str(error)):
            raise
        raise _lost() from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _ended(*_: object) -> None:
    raise _lost()


def _lost() -> LostError:
    return LostError(
        "another process of this run has ended, and so this one does: what ended it is told above,"
        " or by the system if it was killed; go on from the newest checkpoint with --resume"
    )


# ---- Memory: on a CPU it is kept in the process, on a GPU it is looked at.

# Of malloc.h: blocks from so many bytes on are mapped, and so many free ones are given back.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_ALL_BUT_HUGE = 1 << 30


def keep_memory() -> bool:
    """Have malloc keep what is freed, up to 1 GiB a block, from here on; whether it does.

    Where there is no glibc (other systems, other libraries) nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(name, _ALL_BUT_HUGE) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    return all(done)


def gpu_memory_used() -> int | None:
    """Bytes in use on this process's GPU, by whomever; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    # What was in use since the last time is more than what is now.
    reserved = torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return int(min(total, total - free + reserved))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the trainers' libraries say beside the run's own view.

    One of TRL's warnings quotes a whole rollout, which is mail.
    """
    told = [logging.getLogger(each) for each in ("trl", "transformers", "accelerate", "datasets")]
    before = [each.level for each in told]
    for each in told:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(told, before, strict=True):
            each.setLevel(level)
