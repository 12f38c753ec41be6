"""The server while a run measures it, on the node: held against changes."""

from collections.abc import Iterator

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


@pytest.fixture
def server(runs: Runs) -> Iterator[Runs]:
    """The server; as it was before, afterwards."""
    runs.write_tasks(SUITE, COMMANDS)
    yield runs
    runs.release()
    runs.serve()
    runs.wait_serving()


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
