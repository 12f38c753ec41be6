"""Commands about finished BenchmarkRuns."""

import argparse
import sys
from pathlib import Path

from whetstone_artifacts.errors import ArtifactError

from whetstone_cli import judge_agreement, leaderboard, results
from whetstone_cli.exits import EXIT_USAGE, refused


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands; each names its function as `command_function`."""
    page = commands.add_parser("report", help="write the page of a benchmark's results, or of several side by side")
    page.add_argument("folders", type=Path, nargs="+", metavar="folder", help="folder with results.json")
    page.add_argument("--baseline", type=Path, help="folder of the run that the others are set beside")
    page.add_argument("-o", dest="output", type=Path, default=Path("report.html"), help="default: report.html")
    page.set_defaults(command_function=report)
    results.add_command(commands)
    leaderboard.add_command(commands)
    judge_agreement.add_command(commands)


def report(options: argparse.Namespace) -> int:
    """Write a page.

    Args:
        options: `folders`, `baseline` and `output` of the command line.

    Returns:
        The exit code: 1 when a result cannot be read, 2 when the page cannot be written.
    """
    try:
        from whetstone_artifacts.report import make_page

        text = make_page(options.folders, options.baseline)
    except (ModuleNotFoundError, ArtifactError) as error:
        return refused(error)
    try:
        options.output.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        sys.stderr.write(f"whetstone: {options.output} cannot be written: {error.strerror}; give another -o\n")
        return EXIT_USAGE
    print(f"wrote {options.output}, {len(text.encode(errors='replace'))} bytes")
    return 0
