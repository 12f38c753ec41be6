"""What the dashboards showed of the loop on the node: a real Prometheus reads what the chart's PodMonitors select."""

from collections.abc import Mapping

import pytest
from support.loop import Loop
from support.prometheus import Prometheus, panels
from support.waiting import eventually
from whetstone_dev.demo import plan

pytestmark = [pytest.mark.cluster, pytest.mark.long]
WITHOUT_DATA: Mapping[str, str] = {}
"""Panels that cannot show anything on the node, and the reason of each."""
SHOWN_SECONDS = 120.0
TARGETS = {
    "whetstone-system/whetstone-operator": {"operator"},
    "whetstone-system/whetstone-engines": {"engine", "sidecar"},
    "whetstone-system/whetstone-trainings": {"main"},
}
"""Containers that are read, by PodMonitor."""


def test_all_that_has_series_was_read_during_the_loop(loop: Loop, prometheus: Prometheus) -> None:
    for job, containers in TARGETS.items():
        for container in containers:
            assert prometheus.has_shown(f'up{{job="{job}", container="{container}"}} == 1'), (job, container)


def test_every_query_of_every_panel_returned_data_during_the_loop(loop: Loop, prometheus: Prometheus) -> None:
    loop.promote("shown")
    queries = list(panels(namespace=loop.namespace, server=plan.SERVER))

    def complete() -> bool:
        loop.stream(plan.ALIAS)
        empty = [(title, query) for title, query in queries if not prometheus.has_shown(query)]
        assert {title for title, _ in empty} == set(WITHOUT_DATA), empty
        return True

    eventually(complete, what="data in all panels but those that cannot have any", seconds=SHOWN_SECONDS)
