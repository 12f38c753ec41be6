"""`whetstone data`: training data checked, taken apart, brought together."""

import argparse

from whetstone_cli.data import convert, expand, importing, metrics, prefer, sample, split, validate


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands; each names its function as `command_function`."""
    one = commands.add_parser("data", help="check and make training data")
    ours = one.add_subparsers(dest="data_command", required=True)
    for command in (validate, split, convert, sample, importing, prefer, metrics, expand):
        command.add_command(ours)
