"""The demo's terminal tasks: training rows and benchmark tasks of the same families, never the same task.

`python -m whetstone_dev.tasks --out DIR --image IMAGE` writes both.
"""

from whetstone_dev.tasks.family import Family, Step, Task
from whetstone_dev.tasks.folder import check_script, write_task
from whetstone_dev.tasks.generate import (
    FAMILIES,
    Message,
    Row,
    benchmark_tasks,
    training_row,
    training_rows,
    training_tasks,
)
from whetstone_dev.tasks.prompt import FINISHED, OUTPUT_LIMIT, SYSTEM_PROMPT, observation, reply
from whetstone_dev.tasks.vocabulary import POOLS, Split

__all__ = [
    "FAMILIES",
    "FINISHED",
    "OUTPUT_LIMIT",
    "POOLS",
    "SYSTEM_PROMPT",
    "Family",
    "Message",
    "Row",
    "Split",
    "Step",
    "Task",
    "benchmark_tasks",
    "check_script",
    "observation",
    "reply",
    "training_row",
    "training_rows",
    "training_tasks",
    "write_task",
]
