"""`whetstone leaderboard`: a folder that Terminal-Bench 2.0's leaderboard takes."""

import argparse
import sys
from pathlib import Path

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.leaderboard import (
    TASKS,
    Submitter,
    check,
    job_folders,
    require_valid,
    write_submission,
)

from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE, refused

_ABOUT = {
    "--agent-url": "page or repository of the agent",
    "--agent-name": "name of the agent",
    "--agent-organization": "who makes the agent",
    "--model": "name of the model",
    "--model-provider": "who serves the model",
    "--model-display-name": "name of the model for people",
    "--model-organization": "who made the model",
}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("leaderboard", help="make and check a submission to Terminal-Bench 2.0's leaderboard")
    one.add_argument("folders", type=Path, nargs="+", metavar="folder", help="folder of a run's results")
    one.add_argument("--check", action="store_true", help="only check, and write nothing")
    for option, text in _ABOUT.items():
        one.add_argument(option, help=text)
    one.add_argument("-o", dest="output", type=Path, default=Path(), help="folder that submissions/ is made in")
    one.set_defaults(command_function=leaderboard)


def leaderboard(options: argparse.Namespace) -> int:
    """Check results against the leaderboard's rules, and write the submission.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a rule is broken, 2 when the command cannot be run so.
    """
    values = {option: getattr(options, option.removeprefix("--").replace("-", "_")) for option in _ABOUT}
    missing = [option for option, value in values.items() if not value]
    if missing and not options.check:
        sys.stderr.write(f"whetstone: the leaderboard asks for {', '.join(missing)}\n")
        return EXIT_USAGE
    try:
        for folder in options.folders:
            require_valid(folder)
    except ArtifactError as error:
        return refused(error)
    jobs = [job for folder in options.folders for job in job_folders(folder)]
    return _check(jobs) if options.check else _write(jobs, options)


def _write(jobs: list[Path], options: argparse.Namespace) -> int:
    submitter = Submitter(
        agent_url=options.agent_url,
        agent=options.agent_name,
        agent_organization=options.agent_organization,
        model=options.model,
        model_provider=options.model_provider,
        model_display_name=options.model_display_name,
        model_organization=options.model_organization,
    )
    try:
        folder = write_submission(jobs, submitter, options.output)
    except (ModuleNotFoundError, ArtifactError) as error:
        return refused(error)
    except OSError as error:
        sys.stderr.write(f"whetstone: {error.filename}: {error.strerror}\n")
        return EXIT_USAGE
    print(f"wrote {folder}")
    return _check(jobs)


def _check(jobs: list[Path]) -> int:
    checked = check(jobs)
    for violation in checked.violations:
        print(violation)
    tasks = len(checked.attempts)
    print(
        f"{sum(checked.attempts.values())} trials of {tasks} tasks, {len(checked.violations)} violations of the rules"
    )
    if tasks != TASKS:
        print(f"Terminal-Bench 2.0 has {TASKS} tasks: a score over {tasks} is none of that benchmark")
    return EXIT_INVALID if checked.violations else 0
