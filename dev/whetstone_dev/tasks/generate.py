"""Draw tasks, and turn them into training rows and benchmark tasks. Same seed and count, same result."""

from collections.abc import Iterator
from itertools import count as count_from
from itertools import islice
from random import Random
from typing import Final, TypedDict

from whetstone_dev.tasks import one_step, search, two_step
from whetstone_dev.tasks.family import Family, Task
from whetstone_dev.tasks.prompt import FINISHED, SYSTEM_PROMPT, observation, reply
from whetstone_dev.tasks.vocabulary import POOLS, Split

FAMILIES: Final[tuple[Family, ...]] = (
    one_step.CREATE_FILE,
    two_step.MOVE_TO_FOLDER,
    one_step.COPY_FILE,
    search.FIND_LINES,
    one_step.DELETE_FILE,
    two_step.FILE_IN_FOLDER,
    one_step.COUNT_LINES,
    one_step.RENAME_FILE,
    one_step.SORT_LINES,
    two_step.FOLLOW_NOTE,
    one_step.APPEND_LINE,
    one_step.MAKE_FOLDERS,
    search.REPLACE_WORD,
    one_step.MAKE_EXECUTABLE,
    one_step.FIRST_LINES,
)
"""All families; tasks are drawn from them in turn, so that any eight in a row mix one step and two."""

_ATTEMPTS: Final = 1000


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


class Row(TypedDict):
    """One training row: a whole episode, and the digest of the task it solves."""

    messages: list[Message]
    task: str


def _tasks(split: Split, seed: int) -> Iterator[Task]:
    """Yield different tasks of a split, family by family, for ever."""
    seen: set[str] = set()
    for number in count_from():
        family = FAMILIES[number % len(FAMILIES)]
        rng = Random(f"{split}/{seed}/{number}")
        wordings = family.wordings_of(split)
        wording = wordings[number // len(FAMILIES) % len(wordings)]
        for _ in range(_ATTEMPTS):
            task = Task(family=family, parameters=family.draw(POOLS[split], rng), wording=wording)
            if task.digest not in seen:
                break
        else:
            raise ValueError(f"family {family.name}: no unused {split} task left after {number}; ask for fewer")
        seen.add(task.digest)
        yield task


def training_tasks(seed: int, count: int) -> list[Task]:
    """Draw `count` different tasks from the training pool with training wordings."""
    return list(islice(_tasks(Split.TRAINING, seed), count))


def benchmark_tasks(seed: int, count: int) -> list[Task]:
    """Draw `count` different tasks from the benchmark pool with held-out wordings."""
    return list(islice(_tasks(Split.BENCHMARK, seed), count))


def training_row(task: Task) -> Row:
    """Render the reference solution of `task` as the episode that the agent would have recorded."""
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": task.instruction},
    ]
    for step in task.steps:
        messages.append({"role": "assistant", "content": reply(step.command)})
        messages.append({"role": "user", "content": observation(0, step.output)})
    messages.append({"role": "assistant", "content": FINISHED})
    return {"messages": messages, "task": task.digest}


def training_rows(seed: int, count: int) -> list[Row]:
    """Draw `count` training rows, in an order that mixes the families."""
    return [training_row(task) for task in training_tasks(seed, count)]
