"""What is alive in a Python process: runs a module in it, and counts at a signal.

As a program, `python -P census.py FILE python -m MODULE` is the module with a counter beside it. At SIGUSR1 it collects
garbage and writes into the file how many objects of each type are left, and tasks, threads and traced memory.
"""

import asyncio
import gc
import json
import os
import runpy
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = Path(__file__)


@dataclass(frozen=True, kw_only=True)
class Census:
    """What a process held.

    Args:
        traced: Bytes of its memory, where PYTHONTRACEMALLOC has them traced; else 0.
        tasks: Tasks of its event loop.
        threads: Its threads.
        types: Objects that may hold others, by type.
    """

    traced: int
    tasks: int
    threads: int
    types: Mapping[str, int]

    def growth(self, since: "Census") -> dict[str, int]:
        """Return how many more there are of each type, tasks and threads among them; the most first."""
        counts = [{**one.types, "tasks": one.tasks, "threads": one.threads} for one in (self, since)]
        more = {name: number - counts[1].get(name, 0) for name, number in counts[0].items()}
        return dict(sorted(((name, n) for name, n in more.items() if n > 0), key=lambda one: -one[1]))


class CountedProcess:
    """Takes the census of a process that this file has started.

    Args:
        file: Where it writes.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def launcher(self) -> list[str]:
        """What the command is an argument of."""
        return [sys.executable, "-P", str(PROGRAM), str(self._file)]

    def ask(self, pid: int) -> Callable[[], Census | None]:
        """Ask for a census, once the process runs; return what gives it as soon as it is there."""
        self._file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
        return self._read

    def _read(self) -> Census | None:
        return Census(**json.loads(self._file.read_text())) if self._file.exists() else None


def main() -> None:
    """Run the module that the arguments name, with the counter."""
    file, module = Path(sys.argv[1]), sys.argv[-1]

    def count(*_: Any) -> None:
        gc.collect()
        types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        told = {
            "traced": tracemalloc.get_traced_memory()[0],
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "types": types,
        }
        part = file.with_suffix(".part")
        part.write_text(json.dumps(told))
        part.replace(file)

    signal.signal(signal.SIGUSR1, count)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
