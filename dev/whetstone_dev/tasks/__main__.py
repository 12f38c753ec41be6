"""Write the demo's data: `train.jsonl` and a folder `tasks` of Harbor tasks."""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from whetstone_dev.tasks.folder import write_task
from whetstone_dev.tasks.generate import benchmark_tasks, training_rows


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def write_data(out: Path, *, train_rows: int, tasks: int, image: str, seed: int) -> None:
    """Write `train.jsonl` and `tasks/` below `out`, each whole or not at all, in place of earlier ones."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".data-", dir=out) as staging_name:
        staging = Path(staging_name)
        rows = training_rows(seed, train_rows)
        (staging / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for task in benchmark_tasks(seed, tasks):
            write_task(task, staging / "tasks", image)
        (staging / "train.jsonl").replace(out / "train.jsonl")
        if (out / "tasks").exists():
            shutil.move(out / "tasks", staging / "replaced")
        (staging / "tasks").rename(out / "tasks")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and write the data."""
    parser = argparse.ArgumentParser(prog="python -m whetstone_dev.tasks", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--train-rows", type=_positive, default=360, help="training rows (default %(default)s)")
    parser.add_argument("--benchmark-tasks", type=_positive, default=20, help="tasks (default %(default)s)")
    parser.add_argument("--image", required=True, help="container image that the benchmark tasks run in")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same data (default %(default)s)")
    args = parser.parse_args(argv)
    write_data(args.out, train_rows=args.train_rows, tasks=args.benchmark_tasks, image=args.image, seed=args.seed)
    print(f"{args.out}: {args.train_rows} training rows, {args.benchmark_tasks} tasks, seed {args.seed}")


if __name__ == "__main__":
    main()
