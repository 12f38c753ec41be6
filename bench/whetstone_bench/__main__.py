"""`make bench`: measure, write `build/bench/*.json`, print the tables, fill `docs/performance.md` when asked.

`make bench ARGS=training` measures the Train phase, which needs no API server and has a table of its own; so have
`make bench ARGS=benchmark`, trials in pods of the local cluster, `make bench ARGS=tooluse`, the tool-use gym,
`make bench ARGS=scale`, thousands of objects beside an operator in Go, and `make bench ARGS=soak`, hours of change.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone_dev.places import CHECKOUT

from whetstone_bench import (
    benchmark,
    figures,
    first_step,
    fleet,
    floor,
    guard_cost,
    operator_image,
    scale,
    serving,
    soak,
    tooluse,
    training,
)
from whetstone_bench.stage import Stage

OUTPUT = CHECKOUT / "build" / "bench" / "serving.json"
TRAINING_OUTPUT = CHECKOUT / "build" / "bench" / "training.json"
TRAINING, TRAINING_ROUNDS = "training", 3
FIRST_STEP_SAMPLES = 3
BENCHMARK, CONCURRENCIES = "benchmark", (1, 8, 32, 100)
BENCHMARK_OUTPUT = CHECKOUT / "build" / "bench" / "benchmark.json"
TOOLUSE = "tooluse"
TOOLUSE_OUTPUT = CHECKOUT / "build" / "bench" / "tooluse.json"
SCALE, OBJECTS = "scale", 1000
SCALE_OUTPUT = CHECKOUT / "build" / "bench" / "scale.json"
SOAK, MINUTES = "soak", 120.0
SOAK_OUTPUT = CHECKOUT / "build" / "bench" / "soak.json"
PAGE = CHECKOUT / "docs" / "performance.md"


def _publish(stage: Stage) -> list[figures.Figure]:
    return [
        figure for replicas in (1, 2, 4) for figure in serving.publish_to_effective(stage, replicas=replicas, samples=8)
    ]


def _replace(stage: Stage) -> list[figures.Figure]:
    return [serving.replacement(stage, adapters=number, samples=5) for number in (1, 16)]


PARTS: dict[str, Callable[[Stage], list[figures.Figure]]] = {
    "publish": _publish,
    "replace": _replace,
    "guard": lambda stage: guard_cost.guard_cost(stage.folder / "guard", rounds=6, seconds=4),
    "pods": lambda stage: fleet.many_pods(stage, pods=64, adapters=32),
    "fleet": lambda stage: [*fleet.fleet(stage, servers=200), floor.bare_writes(stage, servers=200)],
}


ALONE = (TRAINING, BENCHMARK, TOOLUSE, SCALE, SOAK)
"""Parts that run only where they are named, each with a table of its own."""


def main() -> None:
    """Run the parts that the arguments name; all by default."""
    parser = argparse.ArgumentParser(prog="whetstone_bench", description=__doc__)
    known = f"any of {', '.join(PARTS)}; default: all of these; or {', '.join(ALONE)}"
    parser.add_argument("parts", nargs="*", choices=[*PARTS, *ALONE, []], help=known)
    parser.add_argument("--at-a-time", type=int, nargs="+", default=CONCURRENCIES, help="concurrent trials")
    parser.add_argument("--objects", type=int, default=OBJECTS, help="objects of each kind, in scale")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="length of the soak")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/performance.md")
    parser.add_argument("--page-from", type=Path, metavar="JSON", help="only write those of a file, for one part")
    options = parser.parse_args()
    if options.page_from:
        described, found = figures.read_json(options.page_from)
        figures.fill_page(PAGE, described, found, part=options.parts[0] if options.parts else "serving")
        return
    described = figures.machine()
    found = []
    if TRAINING in options.parts:
        measured = [*first_step.first_step(FIRST_STEP_SAMPLES), *training.training(TRAINING_ROUNDS)]
        _tell(TRAINING_OUTPUT, described, measured, part="training", page=options.page)
    if BENCHMARK in options.parts:
        for measured in benchmark.benchmark(options.at_a_time):
            _tell(BENCHMARK_OUTPUT, described, measured, part="benchmark", page=options.page)
    if TOOLUSE in options.parts:
        _tell(TOOLUSE_OUTPUT, described, tooluse.tooluse(), part="tooluse", page=options.page)
    if SCALE in options.parts:
        with tempfile.TemporaryDirectory(prefix="whetstone-bench-") as folder:
            measured = scale.scale(Path(folder), objects=options.objects)
        with_image = {**described, "python": operator_image.python_of_image()}
        _tell(SCALE_OUTPUT, with_image, measured, part="scale", page=options.page)
    if SOAK in options.parts:
        _soak(described, minutes=options.minutes, page=options.page)
    if options.parts and not set(options.parts) & set(PARTS):
        return
    with tempfile.TemporaryDirectory(prefix="whetstone-bench-") as folder, Stage(Path(folder)) as stage:
        for part in [part for part in options.parts if part in PARTS] or PARTS:
            print(f"[whetstone] measuring {part} ...", flush=True)
            found += PARTS[part](stage)
    _tell(OUTPUT, described, found, part="serving", page=options.page)


def _soak(described: dict[str, Any], *, minutes: float, page: bool) -> None:
    """Soak; the file holds the figures of what is done so far at any time."""

    def keep(record: soak.Record) -> None:
        figures.write_json(SOAK_OUTPUT, described, record.figures(), **record.details())

    with tempfile.TemporaryDirectory(prefix="whetstone-bench-") as folder:
        record = soak.soak(Path(folder), seconds=60 * minutes, tell=keep)
    _tell(SOAK_OUTPUT, described, record.figures(), part="soak", page=page, **record.details())


def _tell(
    place: Path, described: dict[str, Any], found: list[figures.Figure], *, part: str, page: bool, **more: Any
) -> None:
    figures.write_json(place, described, found, **more)
    figures.show(described, found)
    print(f"[whetstone] the same in {place.relative_to(CHECKOUT)}")
    if page:
        figures.fill_page(PAGE, described, found, part=part)


if __name__ == "__main__":
    main()
