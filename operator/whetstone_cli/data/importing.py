"""`whetstone data import`: training data from what is there already."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.data.running import add_files, guarded

if TYPE_CHECKING:
    from whetstone_artifacts.data.imports.taken import Row, Skipped


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, with one of its own for each source."""
    one = commands.add_parser("import", help="make rows of logs, audit trails, git history or finished runs")
    sources = one.add_subparsers(dest="source", required=True)
    chats = sources.add_parser("openai", help="logs of chats in the shape of OpenAI's API")
    add_files(chats)
    trail = sources.add_parser("mongodb", help="an audit trail that mongoexport wrote")
    add_files(trail)
    for name, default, text in (
        ("job", "job_id", "what the messages of a job share"),
        ("order", "timestamp", "what they are ordered by"),
        ("messages", "", "list of all messages of a job, where a document is no single message"),
        ("role", "role", "who speaks"),
        ("content", "content", "what is said"),
        ("calls", "tool_calls", "calls of tools"),
    ):
        trail.add_argument(f"--{name}", default=default, metavar="FIELD", help=f"{text}; default: {default or 'none'}")
    trail.add_argument("--only", metavar="FIELD=VALUE", help="only jobs with a document like this")
    history = sources.add_parser("git", help="edits from a git history")
    history.add_argument("repository", type=Path)
    history.add_argument("--revisions", default="HEAD", help="as git log takes them; default HEAD")
    history.add_argument("--glob", default="*", metavar="PATTERN", help="only files of these paths")
    history.add_argument("--max-characters", type=int, default=20_000, metavar="N", help="longest file; default 20000")
    history.add_argument("--max-edits", type=int, default=8, metavar="N", help="most places in a file; default 8")
    runs = sources.add_parser("runs", help="trials of finished runs")
    runs.add_argument("folders", type=Path, nargs="+", metavar="folder", help="folder of a run's results")
    runs.add_argument("--minimum-reward", type=float, default=1.0, metavar="REWARD", help="default 1")
    for source in (chats, trail, history, runs):
        source.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE", help="file of JSON lines")
        source.add_argument("--show", type=int, default=20, metavar="N", help="left-out ones to name; default 20")
        source.set_defaults(command_function=guarded(import_rows))


def import_rows(options: argparse.Namespace) -> int:
    """Write the rows, and say what became none.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when there is no row, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.imports.taken import Skipped
    from whetstone_artifacts.data.writing import row_files

    rows = left_out = 0
    with row_files([options.output]) as (write,):
        for found in _found(options):
            if isinstance(found, Skipped):
                left_out += 1
                if left_out <= options.show:
                    sys.stderr.write(f"left out: {found}\n")
            else:
                rows += 1
                write(found)
        _refuse_none(rows, left_out)
    print(f"{options.output}: {rows} rows; {left_out} left out")
    return 0


def _refuse_none(rows: int, left_out: int) -> None:
    if not rows:
        raise ArtifactError(
            Reason.DATASET_EMPTY, f"nothing became a row, and {left_out} were left out; nothing written"
        )


def _found(options: argparse.Namespace) -> "Iterable[Row | Skipped]":
    if options.source == "openai":
        from whetstone_artifacts.data.imports.chat_logs import from_chat_logs

        return from_chat_logs(options.files)
    if options.source == "mongodb":
        from whetstone_artifacts.data.imports.audit_trail import Fields, from_audit_trail

        names = ("job", "order", "messages", "role", "content", "calls")
        only = options.only.partition("=") if options.only else None
        fields = Fields(**{name: getattr(options, name) for name in names})
        return from_audit_trail(options.files, fields, only=(only[0], only[2]) if only else None)
    if options.source == "git":
        from whetstone_artifacts.data.imports.git_edits import Bounds, from_git

        bounds = Bounds(files=options.glob, characters=options.max_characters, edits=options.max_edits)
        return from_git(options.repository, bounds, options.revisions)
    from whetstone_artifacts.data.imports.runs import from_runs

    return from_runs(options.folders, options.minimum_reward)
