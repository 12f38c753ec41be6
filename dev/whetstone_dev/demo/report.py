"""What the demo ends with: the summary and its table. Pure but for the printing."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Return the seconds between two RFC 3339 times; None where one is missing."""
    if not start or not end:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 3)


def summarize(
    *,
    server: dict[str, Any],
    training: dict[str, Any],
    baseline: dict[str, Any],
    candidate: dict[str, Any],
    seconds: dict[str, float | None],
) -> dict[str, Any]:
    """Return `summary.json`.

    Args:
        server: The ModelServer at the end.
        training: The LoRATrainingJob at the end.
        baseline: The BenchmarkRun of the base.
        candidate: The BenchmarkRun of the adapter.
        seconds: Seconds by stage.
    """
    status = candidate["status"]
    comparison = status.get("comparison") or {}
    alias = ((server["status"].get("aliases")) or [{}])[0]
    return {
        "baseline": baseline["status"]["results"],
        "candidate": status["results"],
        "comparison": {
            key: comparison.get(key) for key in ("verdict", "difference", "interval", "wins", "losses", "ties")
        },
        "adapter": training["status"]["adapter"],
        "training": {"dataset": training["status"].get("dataset"), "metrics": training["status"].get("metrics")},
        "alias": alias,
        "seconds": seconds,
    }


def print_table(summary: dict[str, Any], console: Console) -> None:
    """Print the summary for people."""
    comparison, interval = summary["comparison"], summary["comparison"].get("interval") or {}
    table = Table(title="Whetstone demo", show_header=False)
    table.add_row("baseline (base model)", _score(summary["baseline"]))
    table.add_row("adapter", _score(summary["candidate"]))
    difference = f"{comparison['difference']} (95 % interval {interval.get('low')} to {interval.get('high')})"
    table.add_row("difference", difference)
    table.add_row("verdict", f"[bold]{comparison['verdict']}[/bold]")
    table.add_row("adapter digest", summary["adapter"]["digest"])
    table.add_row(f"alias {summary['alias'].get('name')} serves", str(summary["alias"].get("servedName")))
    for stage, taken in summary["seconds"].items():
        table.add_row(f"seconds: {stage}", "unknown" if taken is None else f"{taken:.1f}")
    console.print(table)


def _score(results: dict[str, Any]) -> str:
    interval = results.get("interval") or {}
    around = f" ({interval['low']} to {interval['high']})" if interval else ""
    return f"{results['mean']}{around} over {results['tasks']} tasks, {results['void']} of {results['trials']} void"
