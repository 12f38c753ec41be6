"""`whetstone power`: tasks and attempts that a wanted difference needs."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from whetstone_api.run_artifact import TaskScore
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.exits import EXIT_INVALID, refused

ATTEMPTS: Final = (1, 2, 3, 5, 10, 20)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command; it names its function as `command_function`."""
    one = commands.add_parser("power", help="say how many tasks and attempts a wanted difference needs")
    one.add_argument("difference", type=_share, help="difference of the means that is to be shown, as in 0.1")
    one.add_argument("--results", type=Path, metavar="folder", help="folder of a run like those that are planned")
    one.add_argument("--mean", type=_share, default=0.5, help="mean that is expected, without --results; default 0.5")
    one.add_argument("--task-spread", type=_share, help="standard deviation of the chance to solve a task; default 0.3")
    one.add_argument("--effect-spread", type=_share, help="and of the difference by task; default: the difference")
    one.add_argument("--power", type=_share, default=0.8, help="wanted chance of a verdict; default 0.8")
    one.add_argument("--output", choices=("text", "json"), default="text")
    one.set_defaults(command_function=power)


def power(options: argparse.Namespace) -> int:
    """Print the tasks needed for several numbers of attempts.

    Args:
        options: The command line.

    Returns:
        The exit code: 1 when the results cannot be read or hold nothing scored.
    """
    try:
        from whetstone_artifacts.power import TASK_SPREAD, assumed_spread, measured_spread, tasks_needed

        task_spread = TASK_SPREAD if options.task_spread is None else options.task_spread
        if options.results is None:
            spread = assumed_spread(options.mean, task_spread)
        else:
            found = measured_spread(_tasks(options.results), task_spread)
            if found is None:
                sys.stderr.write(f"whetstone: {options.results}: no trial was scored; name another run\n")
                return EXIT_INVALID
            spread = found
        effect = options.difference if options.effect_spread is None else options.effect_spread
        needed = {
            attempts: tasks_needed(
                options.difference, attempts=attempts, spread=spread, effect_spread=effect, power=options.power
            )
            for attempts in ATTEMPTS
        }
    except (ModuleNotFoundError, ArtifactError) as error:
        return refused(error)
    if options.output == "json":
        rows = [{"attempts": attempts, "tasks": tasks} for attempts, tasks in needed.items()]
        print(json.dumps({"difference": options.difference, "power": options.power, "needed": rows}))
        return 0
    print(f"To show a difference of {options.difference:g} with a chance of {options.power:g} ({spread.basis}):")
    print("attempts  tasks   trials of each run")
    for attempts, tasks in needed.items():
        told = "too many" if tasks is None else f"{tasks:<7} {tasks * attempts}"
        print(f"{attempts:<9} {told}")
    return 0


def _tasks(folder: Path) -> list[TaskScore]:
    from whetstone_artifacts.report.page import read_results

    return read_results(folder).tasks


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value
