"""How busy the engines were: series by the names of vLLM 0.32, and a run against a stand-in that shows such a page."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import artifact_of, lazy, run
from whetstone_agent.engine_use import SAMPLES_FILE, engine_samples, parse_series, read_engine_use
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.run_artifact import EngineUse

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]
LABELS = 'engine="0",model_name="base"'


def page(*, running: float = 3, usage: float = 0.25, queries: float = 100, hits: float = 40) -> str:
    return (
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 17.0\n"
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{LABELS}}} {running}\n"
        f'vllm:num_requests_running{{engine="1",model_name="base"}} 1.0\n'
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{{LABELS}}} {usage}\n"
        f'vllm:kv_cache_usage_perc{{engine="1",model_name="base"}} 0.1\n'
        f"# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total{{{LABELS}}} {queries}\n"
        f"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total{{{LABELS}}} {hits}\n"
        f"# TYPE other gauge\nother 5\n"
    )


def test_series_are_summed_over_engines_and_the_fullest_cache_counts() -> None:
    assert parse_series(page()) == {
        "process_start_time_seconds": 17.0,
        "requestsRunning": 4.0,
        "kvCacheUsage": 0.25,
        "vllm:prefix_cache_queries_total": 100.0,
        "vllm:prefix_cache_hits_total": 40.0,
    }
    assert parse_series("# nothing of vLLM\nother 5\n") == {}


def keep(folder: Path, *pages: dict[str, Any]) -> Path:
    folder.mkdir()
    lines = [json.dumps(parse_series(page(**one)) | one.pop("extra", {})) for one in pages]
    (folder / SAMPLES_FILE).write_text("\n".join([*lines, '{"kvCacheUsage": 0.']))
    return folder


def test_samples_of_all_shards_become_figures_and_counters_count_from_the_start(tmp_path: Path) -> None:
    one = keep(tmp_path / "0", {"usage": 0.2, "queries": 100, "hits": 90}, {"usage": 0.6, "queries": 300, "hits": 140})
    other = keep(tmp_path / "1", {"usage": 0.4, "running": 0, "queries": 200, "hits": 100})
    assert read_engine_use([one, other, tmp_path / "none"]) == [
        EngineUse(name="kvCacheUsage", minimum=0.2, mean=0.4, maximum=0.6, samples=3),
        EngineUse(name="requestsRunning", minimum=1, mean=3, maximum=4, samples=3),
        EngineUse(name="prefixCacheHits", minimum=0.25, mean=0.25, maximum=0.25, samples=1),
    ]
    assert read_engine_use([tmp_path / "none"]) == []


def write(folder: Path, samples: list[dict[str, float]]) -> list[EngineUse]:
    (folder / SAMPLES_FILE).write_text("\n".join(map(json.dumps, samples)))
    return read_engine_use([folder])


def test_counters_of_replicas_that_cannot_be_told_apart_give_no_share(tmp_path: Path) -> None:
    queries, hits = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
    mixed = [{queries: 100, hits: 10}, {queries: 5000, hits: 4000}, {queries: 110, hits: 12}]
    assert write(tmp_path, mixed) == []
    told = [{**one, "process_start_time_seconds": 1 + number % 2} for number, one in enumerate(mixed)]
    assert [one.mean for one in write(tmp_path, told)] == [0.2]


async def test_a_run_tells_how_busy_its_engines_were(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(lazy, series=page())
    config = configure(serverUrl=url)
    await run(config, local)
    use = {one.name: (one.minimum, one.maximum) for one in artifact_of(config).engine_use}
    assert use == {"kvCacheUsage": (0.25, 0.25), "requestsRunning": (4.0, 4.0)}
    assert (
        '<th>engine: kv cache usage</th><td class="n" data-run="1" data-figure="engine.kvCacheUsage">0.25'
        in (Path(config.output_path) / "report.html").read_text()
    )


@pytest.mark.parametrize("status", [200, 403])
async def test_samples_are_taken_during_the_trials_and_a_server_without_them_costs_nothing(
    configure: Configure, tmp_path: Path, status: int
) -> None:
    asked = asyncio.Event()
    count = 0

    async def metrics(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        if count == 3:
            asked.set()
        return web.Response(status=status, text=page())

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    server = TestServer(app)
    await server.start_server()
    config = configure(serverUrl=str(server.make_url("/v1")))
    async with engine_samples(config, tmp_path, interval_seconds=0.01):
        await asyncio.wait_for(asked.wait(), 30)
    await server.close()
    assert bool(read_engine_use([tmp_path])) == (status == 200)
