"""Trials in pods beside Harbor alone: how many a minute, and what each takes beyond its agent and its verifier."""

import asyncio
import json
import os
import re
import secrets
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from unit.agent.fake_model import FakeModel
from whetstone_dev.commands import DevError
from whetstone_dev.demo.kube import Kube
from whetstone_dev.images import references_of
from whetstone_dev.places import BUILD, CHECKOUT

from whetstone_bench.figures import Figure, once, spread

MODEL: Final = "stub"
LEAST_TRIALS: Final = 8
MOST_TRIALS: Final = 100
RESOURCES: Final = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}}
PATHS: Final = ("bench", "tests", "dev", "operator", "agent")


def benchmark(concurrencies: Sequence[int]) -> Iterator[list[Figure]]:
    """Measure runs at so many trials at a time, in pods of the local cluster and by Harbor alone.

    Yields:
        The figures so far, after each number: a larger one may take longer than somebody waits.

    Raises:
        DevError: There is no local cluster, or a trial was not solved.
    """
    kubeconfig = Path(os.environ.get("KUBECONFIG") or BUILD / "kubeconfig")
    if not kubeconfig.is_file():
        raise DevError(f"{kubeconfig} does not exist; run `make cluster images` first")
    found: list[Figure] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _namespace(Kube.connect(kubeconfig)) as namespace, tempfile.TemporaryDirectory() as folder:
        variables = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": namespace}
        for number in concurrencies:
            for pods in (True, False):
                print(f"[whetstone] {number} trials at a time, {'pods' if pods else 'Harbor alone'} ...", flush=True)
                place = Path(folder) / f"{number}-{'pods' if pods else 'alone'}"
                found += asyncio.run(_measure(place, number, pods=pods, variables=variables))
            yield found


async def _measure(place: Path, concurrency: int, *, pods: bool, variables: dict[str, str]) -> list[Figure]:
    trials = min(max(LEAST_TRIALS, 2 * concurrency), MOST_TRIALS)
    _write_tasks(place / "tasks", trials)
    server = await FakeModel(name=MODEL, mind=_mind).start()
    try:
        wanted = {
            "pods": pods,
            "tasks": str(place / "tasks"),
            "output": str(place / "results"),
            "url": str(server.make_url("/v1")),
            "model": MODEL,
            "concurrency": concurrency,
            "resources": RESOURCES,
        }
        told = await _child(wanted, variables)
    finally:
        await server.close()
    return _figures(told, concurrency=concurrency, trials=trials, pods=pods)


async def _child(wanted: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "whetstone_bench.benchmark_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables, "PYTHONPATH": ":".join(str(CHECKOUT / path) for path in PATHS)},
    )
    try:
        out, err = await process.communicate(json.dumps(wanted).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise DevError(f"the measured run failed: {err.decode(errors='replace')[-2000:]}")
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def _figures(told: dict[str, Any], *, concurrency: int, trials: int, pods: bool) -> list[Figure]:
    results = [json.loads(path.read_text()) for path in Path(told["output"]).glob("harbor/*/*/result.json")]
    solved = sum((one.get("verifier_result") or {}).get("rewards", {}).get("reward") == 1 for one in results)
    if solved != trials:
        raise DevError(f"{solved} of {trials} trials were solved, so these figures would mean nothing")
    begin = min(datetime.fromisoformat(one["started_at"]) for one in results)
    end = max(datetime.fromisoformat(one["finished_at"]) for one in results)
    overheads = [_seconds(one) - _seconds(one["agent_execution"]) - _seconds(one["verifier"]) for one in results]
    where = "trials in pods" if pods else "Harbor alone, trials as local processes"
    found = [
        once(f"{concurrency} at a time, {where}: trials a minute", trials / (end - begin).total_seconds() * 60, ""),
        spread("the same: seconds of a trial beyond agent and verifier", overheads, "s"),
        once("the same: largest memory of the runner", round(told["mebibytes"], 1), "MiB"),
    ]
    if pods:
        median = statistics.median(_seconds(one["environment_setup"]) for one in results)
        found.insert(2, once("the same: seconds until the pod runs and holds the task's files, median", median, "s"))
        found.append(once("the same: the runner's requests to the API server a trial", told["requests"] / trials, ""))
    return found


def _seconds(timing: dict[str, str]) -> float:
    begin, end = (datetime.fromisoformat(timing[name]) for name in ("started_at", "finished_at"))
    return (end - begin).total_seconds()


def _mind(messages: list[dict[str, str]]) -> str:
    """Create the file that the instruction names, then say so."""
    if messages[-1]["content"].startswith("Exit code: 0"):
        return "DONE"
    found = re.search(r"Create the file (\S+)\.", messages[-1]["content"])
    return f"```bash\ntouch {found[1]}\n```" if found else "OK"


def _write_tasks(parent: Path, number: int) -> None:
    """Write tasks that are solved by one file; they run in pods and, where SANDBOX is set, as local processes."""
    image = references_of()["task"]
    for index in range(number):
        texts = {
            "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 300\n[verifier]\ntimeout_sec = 300\n'
            f'[environment]\ndocker_image = "{image}"\nworkdir = "/app"\nbuild_timeout_sec = 600\n',
            "instruction.md": "Create the file done.txt.\n",
            "tests/test.sh": '#!/bin/bash\n[ -e "$SANDBOX/app/done.txt" ] && reward=1 || reward=0\n'
            'echo $reward >"$SANDBOX/logs/verifier/reward.txt"\n',
            "environment/given.txt": "given\n",
        }
        for name, text in texts.items():
            path = parent / f"task-{index:03}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


@contextmanager
def _namespace(kube: Kube) -> Iterator[str]:
    name = f"bench-{secrets.token_hex(3)}"
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        kube.delete("v1", "Namespace", name=name)
