"""The server while a run measures it, on the node: held against changes, and what becomes of one that changes."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.obedient_runs import RUN_SECONDS, SERVER, Runs, rewards
from support.waiting import eventually
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SUITE = "measured"
QUICK = {f"quick-{number}": "echo 1 >answer.txt" for number in range(2)}
COMMANDS = {**QUICK, "slow-2": "echo 0.5 >answer.txt"}
REWARDS = {"quick-0": [1.0], "quick-1": [1.0], "slow-2": [0.5]}
CHANGED = {"startup": {"timeoutSeconds": 700}}
ADAPTER = "skill"
EFFECTS = {"first": 0.5, "second": 0.25}
"""Effect of each version of the adapter, in nats."""


@pytest.fixture
def server(runs: Runs) -> Iterator[Runs]:
    """The server; as it was before, afterwards."""
    runs.write_tasks(SUITE, COMMANDS)
    yield runs
    runs.release()
    runs.remember()
    runs.serve()
    runs.wait_serving()


@pytest.fixture
def versions(server: Runs) -> dict[str, str]:
    """Digests of two versions of an adapter, of which the server has the first."""
    digests = {name: server.make_adapter(f"{ADAPTER}-{name}", effect=effect) for name, effect in EFFECTS.items()}
    serve_version(server, "first", digests)
    return digests


def serve_version(server: Runs, version: str, digests: dict[str, str]) -> None:
    """Let the server have a version of the adapter, and wait until it is effective."""
    source = {"uri": f"pvc://adapters/{ADAPTER}-{version}", "digest": digests[version]}
    server.serve(adapters=[{"name": ADAPTER, "source": source}])
    server.wait_effective(ADAPTER, digests[version])


def start_on_adapter(server: Runs, name: str) -> None:
    """Start a run on the adapter, and bring it to its middle."""
    server.hold("slow-2")
    server.start(name, SUITE, target={"modelServerRef": {"name": SERVER}, "adapter": ADAPTER})
    server.wait_finished(name, QUICK)


def held(runs: Runs) -> str:
    """Return what the condition Held says."""
    found = condition(runs.get("ModelServer", SERVER), "Held")
    return str(found["message"]) if found else ""


def test_rollout_waits_for_the_end_of_the_run(server: Runs) -> None:
    server.hold("slow-2")
    server.start("rolled", SUITE)
    server.wait_finished("rolled", QUICK)
    before = [pod["metadata"]["uid"] for pod in server.engine_pods()]
    server.serve(**CHANGED)
    eventually(lambda: "a change of the spec waits" in held(server), what="the change waits")
    assert [pod["metadata"]["uid"] for pod in server.engine_pods()] == before
    server.release()
    run = server.end("rolled")
    assert is_true(run, "Valid")
    assert rewards(server.artifact("rolled")) == REWARDS

    def replaced() -> bool:
        pods = [pod["metadata"]["uid"] for pod in server.engine_pods()]
        return len(pods) == 1 and pods != before

    eventually(replaced, what="the change is rolled out", seconds=RUN_SECONDS)
    assert held(server) == ""


def test_run_keeps_its_version_where_a_newer_one_comes(server: Runs, versions: dict[str, str]) -> None:
    start_on_adapter(server, "kept")
    before = [pod["metadata"]["uid"] for pod in server.engine_pods()]
    serve_version(server, "second", versions)
    server.release()
    run = server.end("kept")
    assert is_true(run, "Valid")
    assert run["status"]["target"]["digest"] == versions["first"]
    assert run["status"]["results"]["void"] == 0
    assert rewards(server.artifact("kept")) == REWARDS
    assert [pod["metadata"]["uid"] for pod in server.engine_pods()] == before
    assert server.adapter(ADAPTER)["digest"] == versions["second"]


def test_run_whose_version_the_engine_loses_has_no_result(server: Runs, versions: dict[str, str]) -> None:
    start_on_adapter(server, "lost")
    kept = server.finished("lost")
    server.forget(f"{ADAPTER}--{versions['first'].removeprefix('sha256:')[:8]}")
    server.release()

    def failed() -> dict[str, Any]:
        found = condition(server.get("BenchmarkRun", "lost"), "Failed")
        assert found, "the run goes on"
        return found

    assert eventually(failed, what="the run ends", seconds=RUN_SECONDS)["reason"] == "TargetChanged"
    run = server.get("BenchmarkRun", "lost")
    assert not is_true(run, "Ready")
    assert "results" not in run["status"]
    assert server.finished("lost") == kept
    eventually(lambda: not server.trial_pods("lost"), what="no trial pod is left", seconds=60)
