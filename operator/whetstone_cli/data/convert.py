"""`whetstone data convert`: the same rows in another form."""

import argparse
from pathlib import Path

from whetstone_cli.data.running import add_files, guarded

FORMS = ("openai", "sharegpt", "prompt")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("convert", help="write rows in one form, whatever forms they have")
    add_files(one)
    one.add_argument("--to", choices=FORMS, required=True, help="the form")
    one.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE", help="file of JSON lines to make")
    one.set_defaults(command_function=guarded(convert))


def convert(options: argparse.Namespace) -> int:
    """Write the file.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a row is wrong, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.conversion import Form, convert
    from whetstone_artifacts.data.reading import read_all
    from whetstone_artifacts.data.writing import row_files

    count = 0
    with row_files([options.output]) as (write,):
        for read in read_all(options.files):
            write(convert(read.value, read.example, Form(options.to)))
            count += 1
    print(f"{options.output}: {count} rows")
    return 0
