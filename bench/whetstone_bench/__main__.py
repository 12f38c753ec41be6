"""`make bench`: measure, write `build/bench/*.json`, print the tables, fill `docs/performance.md` when asked.

`make bench ARGS=training` measures the Train phase, which needs no API server and has a table of its own; so have
`make bench ARGS=benchmark`, trials in pods of the local cluster, `make bench ARGS=tooluse`, the tool-use gym, and
`make bench ARGS=scale`, thousands of objects beside an operator in Go.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone_dev.places import CHECKOUT

from whetstone_bench import benchmark, figures, first_step, fleet, floor, guard_cost, scale, serving, tooluse, training
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


def main() -> None:
    """Run the parts that the arguments name; all by default."""
    parser = argparse.ArgumentParser(prog="whetstone_bench", description=__doc__)
    known = f"any of {', '.join(PARTS)}; default: all of these; or {TRAINING}, {BENCHMARK}, {TOOLUSE}, {SCALE}"
    parser.add_argument("parts", nargs="*", choices=[*PARTS, TRAINING, BENCHMARK, TOOLUSE, SCALE, []], help=known)
    parser.add_argument("--at-a-time", type=int, nargs="+", default=CONCURRENCIES, help="concurrent trials")
    parser.add_argument("--objects", type=int, default=OBJECTS, help="objects of each kind, in scale")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    described = figures.machine()
    found: list[figures.Figure] = []
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
        _tell(SCALE_OUTPUT, described, measured, part="scale", page=options.page)
    if options.parts and not set(options.parts) & set(PARTS):
        return
    with tempfile.TemporaryDirectory(prefix="whetstone-bench-") as folder, Stage(Path(folder)) as stage:
        for part in [part for part in options.parts if part in PARTS] or PARTS:
            print(f"[whetstone] measuring {part} ...", flush=True)
            found += PARTS[part](stage)
    _tell(OUTPUT, described, found, part="serving", page=options.page)


def _tell(place: Path, described: dict[str, Any], found: list[figures.Figure], *, part: str, page: bool) -> None:
    figures.write_json(place, described, found)
    figures.show(described, found)
    print(f"[whetstone] the same in {place.relative_to(CHECKOUT)}")
    if page:
        figures.fill_page(PAGE, described, found, part=part)


if __name__ == "__main__":
    main()
