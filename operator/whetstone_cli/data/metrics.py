"""`whetstone data metrics`: how disciplined an agent works."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.data.running import guarded
from whetstone_cli.exits import EXIT_INVALID

if TYPE_CHECKING:
    from whetstone_api.benchmark_discipline import DisciplineRules
    from whetstone_artifacts.data.discipline import Figures, Trajectory

TARGETS: Final = {
    "todoCompletion": (0.95, True),
    "extraTokens": (0.1, False),
    "phaseAdherence": (0.98, True),
    "success": (0.9, True),
    "tokenChange": (-0.2, False),
}
"""What is aimed at, and whether more is better."""
_NAMES: Final = {
    "todoCompletion": "todos marked done",
    "extraTokens": "extra tokens of edits",
    "phaseAdherence": "calls their phase allows",
    "success": "tasks solved",
    "tokensPerTask": "tokens per task",
    "tokenChange": "tokens against baseline",
}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("metrics", help="say how disciplined an agent works, from its trajectories")
    one.add_argument("places", type=Path, nargs="+", metavar="place", help="a run's results, or file of rows")
    one.add_argument("--baseline", type=Path, action="append", default=[], metavar="PLACE", help="to set tokens beside")
    one.add_argument("--rules", type=Path, metavar="FILE", help="YAML that says which tools mean what")
    one.add_argument("--check", action="store_true", help="exit code 1 where a figure misses its target")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(command_function=guarded(metrics))


def metrics(options: argparse.Namespace) -> int:
    """Print the figures.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when something is wrong or a target is missed, 2 when the command cannot be run so.
    """
    from whetstone_artifacts.data.discipline import figures_of, token_change

    rules = _rules(options.rules)
    ours, baseline = _read(options.places), _read(options.baseline)
    if not ours:
        raise ArtifactError(Reason.DATASET_EMPTY, "there are no trajectories; name a run's results or a file of rows")
    figures, rungs = figures_of(ours, rules)
    told = _told(figures)
    if baseline:
        told["tokenChange"] = token_change(ours, baseline)
    missed = [name for name, value in told.items() if name in TARGETS and not _meets(name, value)]
    if options.json:
        parts = {rung.value: _told(one) for rung, one in rungs.items()}
        print(json.dumps({**told, "counts": vars(figures.counts), "toolCalls": parts, "missed": missed}, indent=1))
    else:
        _print({"all": (figures, told), **{rung.value: (one, _told(one)) for rung, one in rungs.items()}})
    return EXIT_INVALID if options.check and missed else 0


def _rules(path: Path | None) -> "DisciplineRules":
    import yaml
    from pydantic import ValidationError
    from whetstone_api.benchmark_discipline import DisciplineRules

    try:
        if path is None:
            return DisciplineRules()
        return DisciplineRules.model_validate(yaml.safe_load(path.read_text()) or {}, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "rules"
        raise ArtifactError(Reason.INVALID_SPEC, f"{path}: {where}: {first['msg']}; see docs/discipline.md") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ArtifactError(Reason.INVALID_SPEC, f"{path} is no YAML ({error})") from error


def _read(places: Sequence[Path]) -> "list[Trajectory]":
    from whetstone_artifacts.data.trajectories import read_trajectories

    return [one for place in places for one in read_trajectories(place)]


def _told(figures: "Figures") -> dict[str, float | None]:
    return {
        "todoCompletion": figures.todo_completion,
        "extraTokens": figures.extra_tokens,
        "phaseAdherence": figures.phase_adherence,
        "success": figures.success,
        "tokensPerTask": figures.tokens_per_task,
    }


def _meets(name: str, value: float | None) -> bool:
    """Whether a figure meets its target; one that nothing tells misses none."""
    target, more = TARGETS[name]
    return value is None or (value >= target if more else value <= target)


def _print(columns: "Mapping[str, tuple[Figures, dict[str, float | None]]]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("figure", "target", *columns):
        table.add_column(name, justify="left" if name == "figure" else "right")
    table.add_row("trajectories", "", *(str(figures.counts.trajectories) for figures, _ in columns.values()))
    for name, title in _NAMES.items():
        if any(name in told for _, told in columns.values()):
            table.add_row(title, _target(name), *(_cell(name, told.get(name)) for _, told in columns.values()))
    Console(file=sys.stdout, markup=False, highlight=False).print(table)


def _target(name: str) -> str:
    if name not in TARGETS:
        return ""
    value, more = TARGETS[name]
    return f"{'at least' if more else 'at most'} {value:.0%}"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "tokensPerTask":
        return f"{value:.1f}"
    return f"{value:.1%}" + ("" if _meets(name, value) else " !")
