"""`whetstone data prefer`: pairs of a better and a worse answer from rows that were judged."""

import argparse
import sys
from pathlib import Path

from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.data.running import add_files, guarded

_VERDICTS = {"accepted": True, "rejected": False}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("prefer", help="make preference pairs of rows that were called good or bad")
    add_files(one)
    one.add_argument("--verdicts", type=Path, metavar="FILE", help="lines of a review page; else each row's `label`")
    one.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE", help="file of JSON lines to make")
    one.set_defaults(command_function=guarded(prefer))


def prefer(options: argparse.Namespace) -> int:
    """Write the pairs, and say what became none.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a row is wrong or there is no pair, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.preferring import Left, pairs_of
    from whetstone_artifacts.data.reading import read_all
    from whetstone_artifacts.data.writing import row_files

    verdicts = {} if options.verdicts is None else _verdicts(options.verdicts, {str(path) for path in options.files})
    left, count = Left(), 0
    with row_files([options.output]) as (write,):
        for pair in pairs_of(read_all(options.files), verdicts, left):
            write(pair)
            count += 1
        _refuse_none(count)
    print(f"{options.output}: {count} pairs")
    for number, what in ((left.unjudged, "not judged"), (left.alone, "without a row to prefer or to be preferred to")):
        if number:
            sys.stderr.write(f"left out: {number} rows {what}\n")
    if left.same:
        sys.stderr.write(f"left out: {left.same} pairs whose sides do not differ in an answer\n")
    return 0


def _verdicts(path: Path, files: set[str]) -> dict[tuple[str, int], bool]:
    """Read the lines of a review page.

    Raises:
        ArtifactError: A line is none, or is about another file.
    """
    from whetstone_artifacts.data.lines import read_lines

    found = {}
    for line in read_lines(path):
        file, row, verdict = (line.value.get(name) for name in ("file", "row", "verdict"))
        if line.problem or not isinstance(row, int) or verdict not in _VERDICTS:
            problem = line.problem or 'is no verdict; write {"file": ..., "row": ..., "verdict": "accepted"}'
            raise ArtifactError(Reason.DATASET_INVALID, f"{path}, row {line.number}: {problem}")
        if file not in files:
            message = f"{path}, row {line.number}: is about {file}; name the file as it was named for the review"
            raise ArtifactError(Reason.DATASET_INVALID, message)
        found[str(file), row] = _VERDICTS[verdict]
    return found


def _refuse_none(count: int) -> None:
    if not count:
        message = "no question has an accepted and a rejected answer that differ; nothing was written"
        raise ArtifactError(Reason.DATASET_EMPTY, message)
