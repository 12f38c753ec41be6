"""Every panel of every dashboard has data once the loop has run: a real Prometheus has scraped the node meanwhile."""

import json

import pytest
from support.loop import Loop
from support.prometheus import CHART, Prometheus
from support.waiting import eventually
from whetstone_dev.demo import plan

pytestmark = pytest.mark.cluster
PANELS = [
    pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")
    for path in sorted((CHART / "dashboards").glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
]


@pytest.fixture
def watch(prometheus: Prometheus | None) -> Prometheus:
    """The Prometheus that scraped the loop."""
    if prometheus is None:
        pytest.skip("on a cluster of your own, your own Prometheus scrapes")
    return prometheus


@pytest.fixture(scope="module")
def streamed(loop: Loop) -> None:
    """A streamed answer: only those have a first token."""
    client = loop.kube.openai(namespace=loop.namespace, service=plan.SERVER)
    messages = [{"role": "user", "content": "ls"}]
    for _ in client.chat.completions.create(model=plan.MODEL, messages=messages, max_tokens=2, stream=True):
        pass


@pytest.mark.parametrize("expression", PANELS)
def test_panel_has_data(streamed: None, watch: Prometheus, expression: str) -> None:
    filled = expression.replace("$namespace", ".*").replace("$server", ".*")
    eventually(lambda: watch.query(f"max_over_time(({filled})[1h:5s])"), what="data", seconds=60)


def test_no_alert_is_left_by_a_loop_that_went_well(streamed: None, watch: Prometheus) -> None:
    eventually(lambda: not watch.firing(), what="no alert fires", seconds=60)
