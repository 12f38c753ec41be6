"""How the commands about data end when something is wrong."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.exits import EXIT_USAGE, refused

Command = Callable[[argparse.Namespace], int]


def guarded(command: Command) -> Command:
    """Return a command whose errors are sentences and exit codes: 1 for wrong data, 2 where it cannot be run so."""

    def run(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except (ModuleNotFoundError, ArtifactError) as error:
            return refused(error)
        except OSError as error:
            sys.stderr.write(f"whetstone: {error.filename}: {error.strerror}\n")
            return EXIT_USAGE

    return run


def add_files(command: argparse.ArgumentParser) -> None:
    """Let a command take files of rows, as `files`."""
    command.add_argument("files", type=Path, nargs="+", metavar="file", help="JSON lines, or .parquet")


def share(text: str) -> float:
    """Read a share of the command line.

    Raises:
        argparse.ArgumentTypeError: It is not above 0 and below 1.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value
