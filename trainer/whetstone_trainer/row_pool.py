"""As many processes as there are CPUs, that work on chunks of rows; what they make comes in the order of the rows.

Rendering and tokenizing is Python's and one thread's work, so processes help and threads do not. What is made does not
depend on their number. They are forked from a server that has imported the libraries once, so that they share them.
"""

import logging
import math
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Protocol, Self

from whetstone_api.jobs import TrainingConfig

from whetstone_trainer.cpus import available_cpus, memory_limit
from whetstone_trainer.errors import UserError, WorkerLostError
from whetstone_trainer.recipe import Settings
from whetstone_trainer.render import Renderer
from whetstone_trainer.row_work import RowWork

BYTES_A_PROCESS = 8 << 20
"""Bytes of data that a process more pays from: it takes seconds to start."""
MEMORY_FIRST = 2 << 30
MEMORY_EACH = 256 << 20
"""Bytes of main memory that the first process and each further one may take (bench/data_preparation.py measures it)."""
AHEAD = 3
"""Chunks a process that are read ahead: memory stays the same whatever the data's size."""
_LIBRARIES = (
    "whetstone_trainer.without_torch",
    "transformers.models.auto.tokenization_auto",
    "whetstone_trainer.row_work",
)
"""What they are forked with, in this order."""
_worker: RowWork | None = None
log = logging.getLogger(__name__)


class RowProcesses(Protocol):
    """Where chunks are worked on."""

    def map[Task: tuple[Any, ...], Result](
        self, act: Callable[..., Result], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Yield tasks with what a method of `RowWork` returns for each, in order.

        Raises:
            UserError: The first, in the order of the tasks, that reading or working raises.
            WorkerLostError: A process was killed.
        """


def processes_for(config: TrainingConfig) -> int:
    """Return how many processes the data of a job is worth, as far as CPUs and main memory go."""
    files = [Path(dataset.path) for dataset in config.datasets]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return worthwhile(size, cpus=available_cpus(), memory=memory_limit())


def worthwhile(size: int, *, cpus: int, memory: int | None) -> int:
    """Return how many processes some data is worth, at least 1.

    Args:
        size: Bytes of the data.
        cpus: CPUs that there are.
        memory: Bytes of main memory that there are; None where they have no limit.
    """
    room = math.inf if memory is None else 1 + (memory - MEMORY_FIRST) // MEMORY_EACH
    return max(1, int(min(cpus, size // BYTES_A_PROCESS, room)))


class Here:
    """Works in this process.

    Args:
        work: What works.
    """

    def __init__(self, work: RowWork) -> None:
        self._work = work

    def map[Task: tuple[Any, ...], Result](
        self, act: Callable[..., Result], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """As `RowProcesses` says."""
        for task in tasks:
            yield task, act(self._work, *task)


class Beside:
    """Works in processes of their own, which end with its context.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        processes: How many.
    """

    def __init__(self, config: TrainingConfig, settings: Settings, *, processes: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_LIBRARIES))
        # Its imports take seconds, in which this process reads its own.
        forkserver.ensure_running()
        self._ahead = AHEAD * processes
        self._executor = ProcessPoolExecutor(
            processes,
            mp_context=context,
            initializer=_start,
            initargs=(config.to_json(), settings.max_length, settings.seed),
        )
        log.info("%d processes render the rows", processes)

    def __enter__(self) -> Self:
        """Do nothing: processes start with the first tasks."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._executor.shutdown(cancel_futures=True)

    def map[Task: tuple[Any, ...], Result](
        self, act: Callable[..., Result], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """As `RowProcesses` says."""
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        source, failure = iter(tasks), None
        reads = True
        try:
            while reads or waiting:
                if reads and len(waiting) < self._ahead:
                    try:
                        task = next(source)
                        waiting.append((task, self._executor.submit(_call, act, task)))
                    except StopIteration:
                        reads = False
                    except UserError as error:
                        # What is wrong with rows before it comes first.
                        reads, failure = False, error
                else:
                    done, future = waiting.popleft()
                    yield done, future.result()
        except BrokenProcessPool as error:
            raise WorkerLostError(
                "a process that renders rows was killed from outside, most likely for want of memory; the next attempt"
                " starts from the first row: raise limits.memory of spec.resources if it happens again"
            ) from error
        if failure is not None:
            raise failure


def _start(config: str, max_length: int, seed: int) -> None:
    """Make a process ready to work. Its one thread is enough: there are as many processes as CPUs."""
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import AutoTokenizer

    asked = TrainingConfig.model_validate_json(config)
    tokenizer = AutoTokenizer.from_pretrained(asked.base_model_path, local_files_only=True)
    _worker = RowWork(asked, max_length=max_length, seed=seed, renderer=Renderer(tokenizer))


def _call(act: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    return act(_worker, *task)
