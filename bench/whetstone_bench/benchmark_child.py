"""One run of trials in a process of its own, so that its memory and its requests are its own.

`python -m whetstone_bench.benchmark_child` reads a JSON object from standard input and prints one.
"""

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

LOCAL = "unit.agent.local_process:LocalProcessEnvironment"
PLAIN = "whetstone_bench.plain_agent:PlainAgent"


class Silent:
    """Takes a run's reports."""

    def send(self, report: Any) -> None:
        """Drop a report."""


def count_requests(kubeconfig: Path) -> list[str]:
    """Return a list that gets every request to the API server from now on; a connection for exec is one."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    place = urlsplit(cluster["server"]).netloc
    seen: list[str] = []
    send = aiohttp.ClientSession._request  # noqa: SLF001 - every request goes through it, connections for exec too

    async def counted(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> Any:
        if urlsplit(str(url)).netloc == place:
            seen.append(method)
        return await send(self, method, url, **options)

    aiohttp.ClientSession._request = counted  # type: ignore[method-assign,assignment]  # noqa: SLF001
    return seen


def task_paths(wanted: dict[str, Any]) -> list[str]:
    """Return the folders of the tasks."""
    return [str(path) for path in sorted(Path(wanted["tasks"]).iterdir())]


async def in_pods(wanted: dict[str, Any]) -> Path:
    """Run the whole runner, with trials in pods; return the folder of the results."""
    from whetstone_agent.environment.cluster import Cluster
    from whetstone_agent.run import run_benchmark
    from whetstone_api.jobs import BenchmarkConfig

    output = Path(wanted["output"])
    config = BenchmarkConfig.model_validate(
        {
            "object": {"kind": "BenchmarkRun", "namespace": os.environ["POD_NAMESPACE"], "name": "bench", "uid": "u"},
            "reportUrl": "http://127.0.0.1:9/none",
            "serverUrl": wanted["url"],
            "servedName": wanted["model"],
            "suite": {"dataset": {"uri": "pvc://data/tasks"}, "trialResources": wanted["resources"]},
            "datasetPath": wanted["tasks"],
            "agent": {"name": "whetstone"},
            "sampling": {},
            "attempts": 1,
            "concurrency": wanted["concurrency"],
            "outputPath": str(output),
            "outputUri": "pvc://data/results",
        }
    )
    try:
        await run_benchmark(config, Silent())  # type: ignore[arg-type]
    finally:
        await Cluster.close_shared()
    return output


async def harbor_alone(wanted: dict[str, Any]) -> Path:
    """Run the same tasks by Harbor with local processes as sandboxes; return the folder of the results."""
    from harbor.job import Job
    from harbor.models.job.config import JobConfig
    from whetstone_agent.harness import prepare_process

    prepare_process()
    output = Path(wanted["output"])
    job = await Job.create(
        JobConfig.model_validate(
            {
                "jobs_dir": output / "harbor",
                "job_name": "alone",
                "n_concurrent_trials": wanted["concurrency"],
                "quiet": True,
                "environment": {"import_path": LOCAL},
                "agents": [
                    {
                        "import_path": PLAIN,
                        "model_name": wanted["model"],
                        "skip_model_parsing": True,
                        "kwargs": {"server_url": wanted["url"], "served_name": wanted["model"]},
                    }
                ],
                "tasks": [{"path": path} for path in task_paths(wanted)],
            }
        )
    )
    await job.run()
    return output


def main() -> None:
    """Run what standard input says and print what it took."""
    wanted = json.load(sys.stdin)
    requests = count_requests(Path(os.environ["KUBECONFIG"]))
    output = asyncio.run(in_pods(wanted) if wanted["pods"] else harbor_alone(wanted))
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"output": str(output), "requests": len(requests), "mebibytes": kibibytes / 1024}))


if __name__ == "__main__":
    main()
