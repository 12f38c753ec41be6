"""What the tool-use gym costs beyond the model and the API: a step, and a search among 10,000 documents."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import httpx
from whetstone_agent.tooluse.actions import Action
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.env import EnvironmentSettings, ToolUseEnv
from whetstone_agent.tooluse.retrieval import Collection
from whetstone_agent.tooluse.world import World
from whetstone_dev.places import CHECKOUT

from whetstone_bench.figures import Figure, once, spread

_COMPANY: Final = CHECKOUT / "examples" / "tooluse" / "company"
_KEY: Final = "bench"
_HEADERS: Final = {"Authorization": f"Bearer {_KEY}"}
_CALLS: Final = 300
_DOCUMENTS, _WORDS, _VOCABULARY, _QUERIES = 10_000, 120, 30_000, 200


def tooluse() -> list[Figure]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="whetstone-bench-") as folder:
        world = World.open(_COMPANY, Path(folder))
        return [*_steps(world), *_calls(world), *_searches(Path(folder))]


def _calls(world: World) -> list[Figure]:
    """Time steps that call the company's service beside bare requests for the same, in turn."""
    instances = world.read(_COMPANY / "train.json")
    beyond = []
    with _service() as url, ApiClient(url, headers=_HEADERS) as api, httpx.Client(headers=_HEADERS) as bare:
        env = ToolUseEnv(instances, world, api=api, settings=EnvironmentSettings(horizon=10_000))
        env.reset(options={"instance": next(one.id for one in instances if one.id.startswith("email"))})
        for number in range(_CALLS):
            employee = f"e{number % 40}"
            action = Action(tool="getEmployee", args={"id": employee}).to_text()
            begin = time.perf_counter()
            env.step(action)
            between = time.perf_counter()
            bare.get(f"{url}/employees/{employee}").json()
            beyond.append(1000 * (2 * between - begin - time.perf_counter()))
    return [spread("tool-use gym: a step that calls an API, less a bare request for the same", beyond, "ms")]


@contextmanager
def _service() -> Iterator[str]:
    command = [sys.executable, str(_COMPANY / "service.py"), "--port", "0"]
    environment = {**os.environ, "COMPANY_KEY": _KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def _steps(world: World) -> list[Figure]:
    """Time `reset` and `step` on the company that ships, with searches and answers only."""
    instances = [one for one in world.read(_COMPANY / "train.json") if all(step.searches for step in one.trajectory)]
    env = ToolUseEnv(instances, world, settings=EnvironmentSettings(horizon=50))
    resets, steps = [], []
    for one in instances * 3:
        begin = time.perf_counter()
        env.reset(options={"instance": one.id})
        resets.append(1000 * (time.perf_counter() - begin))
        for action in [action.to_text() for action in env.ground_truth()]:
            begin = time.perf_counter()
            env.step(action)
            steps.append(1000 * (time.perf_counter() - begin))
    return [
        spread("tool-use gym: a step, without model and API", steps, "ms"),
        spread("tool-use gym: a reset", resets, "ms"),
    ]


def _searches(folder: Path) -> list[Figure]:
    rng = Random(1)
    # Words as uneven as those of a language: a few are in every document, most in hardly any.
    words = [f"w{number}" for number in range(_VOCABULARY)]
    weights = [1 / (number + 1) for number in range(_VOCABULARY)]
    path = folder / "large.jsonl"
    with path.open("w") as stream:
        for number in range(_DOCUMENTS):
            text = " ".join(rng.choices(words, weights, k=_WORDS))
            stream.write(json.dumps({"id": str(number), "text": text}) + "\n")
    begin = time.perf_counter()
    collection = Collection.open(path, folder)
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    Collection.open(path, folder)
    opened = time.perf_counter() - begin
    taken = []
    for _ in range(_QUERIES):
        query = " ".join(rng.choices(words, weights, k=8))
        begin = time.perf_counter()
        collection.search(query, 3)
        taken.append(1000 * (time.perf_counter() - begin))
    return [
        spread("search of 8 words among 10,000 documents", taken, "ms"),
        once("index of 10,000 documents of 120 words: built", built, "s"),
        once("the same: opened again, from the cache", opened, "s"),
    ]
