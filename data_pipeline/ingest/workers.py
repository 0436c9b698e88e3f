"""Work spread over all cores, its results in order.

Workers are spawned, not forked (the parent runs DuckDB's threads). Nothing here may import
DuckDB: the workers of an ingest start without it.
"""

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

from data_pipeline.ingest.batch import BatchTables, Job, process

Task = TypeVar("Task")
Done = TypeVar("Done")

# Tasks of each worker: one being worked on, one waiting.
_QUEUED = 2
# Fewer messages than this are parsed sooner than workers start (about 0.7 s).
WORTH_WORKERS = 1200


def processed(jobs: Iterator[Job]) -> Iterator[tuple[Job, BatchTables]]:
    """Every job with its batch, in order; small ingests don't pay for starting workers."""
    first: list[Job] = []
    while sum(len(job.items) for job in first) < WORTH_WORKERS:
        job = next(jobs, None)
        if job is None:
            yield from ((each, process(each)) for each in first)
            return
        first.append(job)
    yield from spread(process, itertools.chain(first, jobs))


def spread(work: Callable[[Task], Done], tasks: Iterator[Task]) -> Iterator[tuple[Task, Done]]:
    """Every task with its result, in order; `work` is a function of a module."""
    workers = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    under_way: deque[tuple[Task, Future[Done]]] = deque()
    try:
        for task in tasks:
            under_way.append((task, _submit(pool, work, task)))
            if len(under_way) >= workers * _QUEUED:
                done, future = under_way.popleft()
                yield done, future.result()
        while under_way:
            done, future = under_way.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, work: Callable[[Task], Done], task: Task) -> Future[Done]:
    """Submit `task`; workers that start here inherit that Ctrl-C is blocked.

    This process defers it, too: a pool interrupted while it starts a worker never ends. Blocking
    the signal is not enough for that, as another thread may take it.
    """
    pressed: list[int] = []
    on_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if on_main_thread:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if on_main_thread:
            signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end when it is killed (its queue would wait for ever)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
