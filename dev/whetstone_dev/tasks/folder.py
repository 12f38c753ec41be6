"""Write a task as the folder that Harbor reads (task format 1.4, https://pypi.org/project/harbor/0.26.0/).

All tasks share one prebuilt image. Harbor copies the loose files of `environment/` into the working directory
of a task that names an image and brings no Dockerfile, and so a task's first files get there.
"""

import json
from pathlib import Path
from typing import Final

from whetstone_dev.tasks.family import Task

WORKDIR: Final = "/app"
_REWARD: Final = "/logs/verifier/reward.txt"


def task_toml(task: Task, image: str) -> str:
    """Render `task.toml`; `image` is the container image all tasks run in."""
    return f"""\
schema_version = "1.4"

[task]
name = {json.dumps(f"whetstone-demo/{task.name}")}
description = {json.dumps(task.instruction)}

[metadata]
family = {json.dumps(task.family.name)}
steps = {len(task.steps)}
task_digest = {json.dumps(task.digest)}

[agent]
timeout_sec = 300.0

[verifier]
timeout_sec = 60.0

[environment]
docker_image = {json.dumps(image)}
workdir = {json.dumps(WORKDIR)}
cpus = 1
memory_mb = 256
storage_mb = 256
build_timeout_sec = 300.0
"""


def check_script(task: Task) -> str:
    """Render the conditions of `task` as a shell script that fails where the task is not solved."""
    return "\n".join(f"{condition} || exit 1" for condition in task.check) + "\n"


def test_script(task: Task) -> str:
    """Render `tests/test.sh`, which writes 1 or 0 as the reward."""
    return f"""\
#!/bin/sh
if (
cd {WORKDIR} || exit 1
{check_script(task)}); then
    echo 1 > {_REWARD}
else
    echo 0 > {_REWARD}
fi
"""


def solution_script(task: Task) -> str:
    """Render `solution/solve.sh`, which Harbor's oracle runs."""
    commands = "\n".join(step.command for step in task.steps)
    return f"#!/bin/bash\nset -e\ncd {WORKDIR}\n{commands}\n"


def write_task(task: Task, parent: Path, image: str) -> Path:
    """Write the folder of `task` below `parent` and return its path.

    Raises FileExistsError when `parent` already has a task of that name.
    """
    folder = parent / task.name
    folder.mkdir(parents=True)
    contents = {
        "task.toml": task_toml(task, image),
        "instruction.md": task.instruction + "\n",
        "tests/test.sh": test_script(task),
        "solution/solve.sh": solution_script(task),
        **{f"environment/{path}": text for path, text in task.files.items()},
    }
    (folder / "environment").mkdir()
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if path in ("tests/test.sh", "solution/solve.sh") else 0o644)
    return folder
