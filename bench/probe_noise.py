r"""How exact the effect probe can be: the noise of an engine's log-probabilities, and what a changed scaling does.

Against a running vLLM behind the guard, with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`, that sees the adapter's folder under
the same path, and copies of it beside it. The thresholds of `whetstone_server.probe` follow from what this prints.

    vllm serve MODEL --enable-lora --middleware whetstone_guard.Guard …   # PYTHONPATH=server/whetstone_server/guard
    PYTHONPATH=operator:server python bench/probe_noise.py --url http://127.0.0.1:8000 --base NAME --adapter FOLDER \
        --token FILE
"""

import argparse
import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from whetstone_api.adapter_artifact import CONFIG_FILE, Probe
from whetstone_server import probe
from whetstone_server.engine import Engine
from whetstone_server.held import read_probe
from whetstone_server.settings import Settings

FACTORS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 1.0, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.25, 2.0)
"""By which the adapter's alpha is multiplied."""
RUNS = 4
"""Measurements of the same thing."""


def largest(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest difference of two measurements, nats."""
    return max(abs(one - other) for one, other in zip(first, second, strict=True))


def scale_of(measured: Sequence[float], recorded: Sequence[float]) -> float:
    """Return by what the recorded effect must be multiplied to come nearest to the measured one."""
    size = sum(value * value for value in recorded)
    return sum(one * other for one, other in zip(measured, recorded, strict=True)) / size if size else 1.0


class Bench:
    """The measurements on one engine.

    Args:
        engine: The engine.
        base: Served name of its base.
        record: The adapter's record.
    """

    def __init__(self, engine: Engine, *, base: str, record: Probe) -> None:
        self._engine = engine
        self._base = base
        self._record = record
        self._cases = [case.token_ids for case in record.cases]

    async def answers(self, model: str, *, one_by_one: bool = False) -> list[float]:
        """Return the log-probabilities of all answer tokens, nats."""
        groups = [[case] for case in self._cases] if one_by_one else [self._cases]
        found = [values for group in groups for values in await self._engine.prompt_logprobs(model, group)]
        return probe.answer_logprobs(self._record, found)

    async def effects(self, name: str, folder: Path) -> list[float]:
        """Return adapter minus base of a folder's adapter, nats."""
        await self._engine.load(name, str(folder))
        try:
            adapter, base = await self.answers(name), await self.answers(self._base)
        finally:
            await self._engine.unload(name)
        return [with_it - without for with_it, without in zip(adapter, base, strict=True)]

    async def report(self, folder: Path, *, dtype: str) -> None:
        """Measure all and print it."""
        recorded = probe.recorded_effects(self._record)
        bases = [value for case in self._record.cases for value in case.base_logprobs]
        most = max(map(abs, recorded))
        print(f"{len(recorded)} tokens; recorded effect: largest {most:.3g}, rms {probe.rms(recorded):.3g}")
        print(f"noise that the trainer recorded: {self._record.noise:.2g}")
        runs = [await self.answers(self._base) for _ in range(RUNS)]
        print(f"base, run to run: {max(largest(runs[0], run) for run in runs):.2g}")
        alone = await self.answers(self._base, one_by_one=True)
        print(f"base, one sequence at a time against all: {largest(alone, runs[0]):.2g}")
        apart = [one - other for one, other in zip(runs[0], bases, strict=True)]
        print(f"base, engine against trainer: largest {max(map(abs, apart)):.2g}, rms {probe.rms(apart):.2g}")
        print("alpha x   scale of the effect   rms of the rest   largest deviation   verdict")
        for factor in FACTORS:
            copy = folder.with_name(f"{folder.name}-alpha-{factor}")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            config = json.loads((copy / CONFIG_FILE).read_text())
            (copy / CONFIG_FILE).write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] * factor}))
            measured = await self.effects(copy.name, copy)
            scale = scale_of(measured, recorded)
            rest = [value - scale * expected for value, expected in zip(measured, recorded, strict=True)]
            verdict = probe.judge_effect(self._record, measured=measured, dtype=dtype)
            print(
                f"{factor:<9} {scale:<21.5f} {probe.rms(rest):<17.2g} {largest(measured, recorded):<19.2g}"
                f" {verdict.effect}: {verdict.message}"
            )
            shutil.rmtree(copy)


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--base", required=True, help="served name of the base model")
    parser.add_argument("--adapter", type=Path, required=True, help="folder of an adapter with a probe.json")
    parser.add_argument("--dtype", default="float32", help="the engine's precision")
    parser.add_argument("--token", type=Path, required=True, help="file of the guard's token")
    given = parser.parse_args()
    record = read_probe(given.adapter)
    if record is None:
        parser.error(f"{given.adapter} has no probe.json")
    async with aiohttp.ClientSession() as session:
        engine = Engine(session, Settings(engine_url=given.url, token_file=given.token))
        await Bench(engine, base=given.base, record=record).report(given.adapter, dtype=given.dtype)


if __name__ == "__main__":
    asyncio.run(main())
