"""Puts a page together and writes it."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.report.chart import WIDTH, Chart, chart
from whetstone_artifacts.report.failures import shared
from whetstone_artifacts.report.judges import read_judges
from whetstone_artifacts.report.pairs import pairs
from whetstone_artifacts.report.policy import policy
from whetstone_artifacts.report.view import RunView, all_tasks, read_view
from whetstone_artifacts.report.words import verdict_sentence

REPORT_FILE: Final = "report.html"
"""The page beside `results.json`."""
MAX_RUNS: Final = 32


def write_report(folder: Path, artifact: RunArtifact, baseline: Path | None) -> Path:
    """Write the page of a run beside its results, unless the page of these results is there.

    Args:
        folder: Folder of the results.
        artifact: What `results.json` says, with the comparison that was made for this run.
        baseline: Folder of the baseline's results, where there is one.

    Returns:
        The page.

    Raises:
        ArtifactError: A result cannot be read.
        OSError: The page cannot be written.
    """
    path = folder / REPORT_FILE
    mark = f'content="{_digest(folder, artifact)}"'.encode()
    try:
        with path.open("rb") as stream:
            if mark in stream.read(4096):
                return path
    except OSError:
        pass
    runs = [(folder, artifact)]
    if baseline is not None:
        runs.append((baseline, read_results(baseline)))
    with replacing(path) as temporary:
        temporary.write_text(_render(runs, baseline=1 if baseline else None), encoding="utf-8", errors="replace")
    return path


def make_page(folders: Sequence[Path], baseline: Path | None = None) -> str:
    """Return the page of one run, or of several side by side.

    Args:
        folders: Folders with `results.json`.
        baseline: Folder of the run that the others are set beside; the first one when absent.

    Raises:
        ArtifactError: A result cannot be read, or there are too many.
    """
    places = [*folders, *([baseline] if baseline is not None and baseline not in folders else [])]
    if len(places) > MAX_RUNS:
        raise ArtifactError(Reason.INVALID_SPEC, f"{len(places)} runs do not fit on one page; give at most {MAX_RUNS}")
    index = places.index(baseline) if baseline is not None else 0 if len(places) > 1 else None
    return _render([(place, read_results(place)) for place in places], baseline=index)


def read_results(folder: Path) -> RunArtifact:
    """Read `results.json`.

    Raises:
        ArtifactError: It is missing or cannot be read.
    """
    path = folder / RESULTS_FILE
    try:
        return RunArtifact.model_validate_json(path.read_bytes())
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); name the folder of a finished run's results"
        raise ArtifactError(Reason.REFERENCE_FAILED, message) from error
    except ValidationError as error:
        message = f"{path} is not the results of a BenchmarkRun: {error.errors()[0]['msg']}"
        raise ArtifactError(Reason.REFERENCE_FAILED, message) from error


def _render(runs: Sequence[tuple[Path, RunArtifact]], *, baseline: int | None) -> str:
    from jinja2 import Environment, StrictUndefined

    views = [read_view(folder, artifact, number=n, runs=len(runs)) for n, (folder, artifact) in enumerate(runs, 1)]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = _text("page.css"), _text("page.js")
    return environment.from_string(_text("page.html.j2")).render(
        style=style,
        script=script,
        policy=policy(style=style, script=script),
        digest=_digest(*runs[0]),
        title=" and ".join(view.name for view in views) if len(views) < 3 else f"{len(views)} runs",
        runs=views,
        tasks=all_tasks(views),
        pairs=pairs(views, views[baseline]) if baseline is not None else [],
        patterns=shared([view.patterns for view in views]) if len(views) > 1 else [],
        verdict=verdict_sentence,
        chart=_chart(views),
        width=WIDTH,
    )


def _chart(views: Sequence[RunView]) -> Chart:
    scored = [view for view in views if view.artifact.results.tasks]
    return chart([(view.name, view.artifact.results.mean, view.artifact.results.interval) for view in scored])


def _digest(folder: Path, artifact: RunArtifact) -> str:
    """Return the digest of what a page shows beside trajectories: figures, and what judges say meanwhile."""
    texts = [artifact.to_json(), *(judge.to_json() for judge in read_judges(folder))]
    return "sha256:" + hashlib.sha256("".join(texts).encode(errors="replace")).hexdigest()


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text()
