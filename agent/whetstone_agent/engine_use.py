"""How busy the engines were during the trials, by vLLM's own series at the server's `/metrics`.

Samples lie beside the trials, a line each, so that a killed runner loses none. An engine without such series, or a
server that does not show them, leaves none: this costs a run nothing.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from whetstone_api.jobs import RunConfig
from whetstone_api.run_artifact import EngineUse

log = logging.getLogger(__name__)

SAMPLES_FILE: Final = "engine-use.jsonl"
INTERVAL_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 60.0
"""Long, for Harbor's start keeps the runner's own loop busy for seconds."""
GAUGES: Final = {
    "vllm:kv_cache_usage_perc": "kvCacheUsage",
    "vllm:num_requests_running": "requestsRunning",
    "vllm:num_requests_waiting": "requestsWaiting",
}
_QUERIES: Final = "vllm:prefix_cache_queries_total"
_HITS: Final = "vllm:prefix_cache_hits_total"
_STARTED: Final = "process_start_time_seconds"
PREFIX_HITS: Final = "prefixCacheHits"

type Sample = dict[str, float]


@contextlib.asynccontextmanager
async def engine_samples(
    config: RunConfig, folder: Path, *, interval_seconds: float = INTERVAL_SECONDS
) -> AsyncIterator[None]:
    """Take samples while the body runs, the first one at once.

    Args:
        config: Names the server.
        folder: Where the samples are kept.
        interval_seconds: Time between two samples.
    """
    url = config.server_url.removesuffix("/").removesuffix("/v1") + "/metrics"
    task = asyncio.create_task(_sample(url, folder / SAMPLES_FILE, interval_seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def read_engine_use(folders: Iterable[Path]) -> list[EngineUse]:
    """Return what the samples of all shards say; nothing where there are none.

    Args:
        folders: The job folders.
    """
    samples = [sample for folder in folders for sample in _read(folder / SAMPLES_FILE)]
    found = [_summed(name, [one[name] for one in samples if name in one]) for name in GAUGES.values()]
    share = _prefix_hits(samples)
    hits = [] if share is None else [_summed(PREFIX_HITS, [share])]
    return [one for one in (*found, *hits) if one is not None]


def parse_series(text: str) -> Sample:
    """Return what a page of series says: gauges summed over the engines of a process, cache usage the highest of them.

    Raises:
        ValueError: It is no page of series.
    """
    sample: Sample = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            name = GAUGES.get(one.name) or (one.name if one.name in (_QUERIES, _HITS, _STARTED) else None)
            if name is not None:
                before = sample.get(name, 0.0)
                sample[name] = max(before, one.value) if name == "kvCacheUsage" else before + one.value
    return sample


async def _sample(url: str, path: Path, interval_seconds: float) -> None:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        while True:
            try:
                async with session.get(url) as response:
                    response.raise_for_status()
                    sample = parse_series(await response.text())
                if sample:
                    await asyncio.to_thread(_append, path, sample)
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                log.debug("no sample of %s: %s", url, error)
            await asyncio.sleep(interval_seconds)


def _append(path: Path, sample: Sample) -> None:
    with path.open("a") as stream:
        # A line that a kill cut off must not swallow the next one.
        stream.write("\n" + json.dumps(sample) + "\n")


def _read(path: Path) -> list[Sample]:
    found = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            one = json.loads(line)
            found.append({str(name): float(value) for name, value in one.items()})
        except (ValueError, AttributeError, TypeError):
            continue
    return found


def _summed(name: str, values: Sequence[float]) -> EngineUse | None:
    if not values:
        return None
    mean = round(sum(values) / len(values), 6)
    return EngineUse(name=name, minimum=min(values), mean=mean, maximum=max(values), samples=len(values))


def _prefix_hits(samples: Sequence[Sample]) -> float | None:
    """Return the share of looked-up tokens that were in the prefix cache meanwhile; None where it cannot be told.

    Counters go on from before the run, and each replica has its own: they are told apart by when they started.
    """
    queries = hits = 0.0
    processes = {one.get(_STARTED) for one in samples if _QUERIES in one and _HITS in one}
    for process in processes:
        own = [one for one in samples if _QUERIES in one and _HITS in one and one.get(_STARTED) == process]
        asked, found = [one[_QUERIES] for one in own], [one[_HITS] for one in own]
        if process is None and (asked != sorted(asked) or found != sorted(found)):
            return None
        queries += max(asked) - min(asked)
        hits += max(found) - min(found)
    return round(hits / queries, 6) if queries else None
