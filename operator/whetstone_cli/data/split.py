"""`whetstone data split`: rows to learn from, and rows to judge by."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.data.running import add_files, guarded, share
from whetstone_cli.exits import EXIT_USAGE


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("split", help="divide rows by task; a task stays where it is when rows are added")
    add_files(one)
    one.add_argument("-o", dest="output", type=Path, required=True, help="folder for train.jsonl, test.jsonl, ...")
    one.add_argument("--test", type=share, default=0.1, metavar="SHARE", help="of the tasks; default 0.1")
    one.add_argument("--validation", type=share, metavar="SHARE", help="of the tasks; no such split when absent")
    one.add_argument("--seed", type=int, default=0, help="another seed is another division; default 0")
    one.set_defaults(command_function=guarded(split))


def split(options: argparse.Namespace) -> int:
    """Write a file for each split.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a row is wrong or a split would be empty, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.reading import read_all
    from whetstone_artifacts.data.splitting import REST, group_of, split_of
    from whetstone_artifacts.data.writing import row_files

    shares = {"test": options.test, **({"validation": options.validation} if options.validation else {})}
    if sum(shares.values()) >= 1:
        sys.stderr.write("whetstone: --test and --validation together leave nothing to learn from; lower them\n")
        return EXIT_USAGE
    names = [REST, *shares]
    rows: Counter[str] = Counter()
    groups: dict[str, set[bytes]] = {name: set() for name in names}
    with row_files([options.output / f"{name}.jsonl" for name in names]) as writers:
        write = dict(zip(names, writers, strict=True))
        for read in read_all(options.files):
            name = split_of(read.example, shares, options.seed)
            write[name](read.value)
            rows[name] += 1
            groups[name].add(group_of(read.example))
        _refuse_empty(names, rows)
    for name in names:
        print(f"{options.output / name}.jsonl: {rows[name]} rows of {len(groups[name])} tasks")
    return 0


def _refuse_empty(names: Sequence[str], rows: Counter[str]) -> None:
    empty = next((name for name in names if not rows[name]), None)
    if empty is not None:
        message = f"no task falls into {empty}; give more tasks, a larger share, or another --seed"
        raise ArtifactError(Reason.DATASET_EMPTY, message)
