"""The node goes down with all that runs on it, and comes back: what was served is served again, with nobody's help."""

import pytest
from support.loop import READY_SECONDS, Loop, pod_is_ready
from support.node import restart
from support.waiting import eventually
from whetstone_dev.demo import plan

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_adapter_is_served_again_after_the_node_was_rebooted(loop: Loop) -> None:
    eventually(loop.is_serving, what="serving before the reboot", seconds=READY_SECONDS)
    before = loop.ask(plan.ADAPTER)
    [pod] = loop.engine_pods()
    restarts = {item["name"]: item["restartCount"] for item in pod["status"]["containerStatuses"]}
    restart()

    def back() -> bool:
        ready = [one for one in loop.engine_pods() if pod_is_ready(one)]
        assert len(ready) == 1, f"{len(ready)} pods Ready"
        [same] = ready
        counts = {item["name"]: item["restartCount"] for item in same["status"]["containerStatuses"]}
        replaced = same["metadata"]["uid"] != pod["metadata"]["uid"]
        assert replaced or all(counts[name] > count for name, count in restarts.items()), f"{counts}"
        return loop.is_serving()

    eventually(back, what="serving after the reboot", seconds=READY_SECONDS * 2)
    assert before[0] == 200
    assert loop.ask(plan.ADAPTER) == before
