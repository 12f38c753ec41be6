"""Who reaches whom with the chart's NetworkPolicies, between pods as they are made."""

from typing import Any

import pytest
from support.charts import OPERATOR, SYSTEM_NAMESPACE, rendered
from support.children import templates_of, variables_of
from support.network_policies import Place, connects
from whetstone_agent.environment.cluster import Runner
from whetstone_agent.environment.manifest import TrialPod, pod_labels, trial_pod
from whetstone_agent.environment.network import NetworkLimit
from whetstone_api.jobs import METRICS_PORT
from whetstone_api.pod_state import ENGINE_PORT, SIDECAR_PORT
from whetstone_operator.settings import Settings

TEAM, OTHER = "team-a", "team-b"
CLUSTER = ["10.0.0.0/8", "fd00::/8"]
METRICS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
VALUES: dict[str, Any] = {
    "images": {"registry": "registry.test"},
    "servedNamespaces": [TEAM, OTHER],
    "networkPolicy": {"enabled": True, "metricsFrom": [METRICS], "trialsExcept": CLUSTER},
}
OUTSIDE, OUTSIDE_6 = Place(address="93.184.216.34"), Place(address="2606:2800::1")
API_SERVER = Place(address="10.96.0.1")
OPERATOR_PORT, ANY_PORT = 8080, 29500
RUNNER = Runner(namespace=TEAM, pod_name="runner", pod_uid="uid")


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return rendered(OPERATOR, VALUES)


@pytest.fixture(scope="module")
def policies(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limited = NetworkLimit().policy(runner=RUNNER, benchmark_run="run")
    return [limited, *(one for one in objects if one["kind"] == "NetworkPolicy")]


@pytest.fixture(scope="module")
def places(objects: list[dict[str, Any]]) -> dict[str, Place]:
    """Pods by what they are, as builders and chart make them."""
    template = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]
    made = templates_of(Settings.from_environment(variables_of(template["spec"])))
    limited = trial_pod(
        TrialPod(
            runner=RUNNER,
            benchmark_run="run",
            session="s",
            nonce="1",
            image="i",
            deadline_seconds=1,
            network_key=NetworkLimit().key(RUNNER),
        )
    )
    labels = {
        "engine": made["engine"]["metadata"]["labels"],
        "training": made["train on several nodes"]["metadata"]["labels"],
        "runner": made["benchmark"]["metadata"]["labels"],
        "trial": pod_labels("run"),
        "limited trial": limited["metadata"]["labels"],
    }
    found = {name: Place(namespace=TEAM, labels=one) for name, one in labels.items()}
    found |= {f"other {name}": Place(namespace=OTHER, labels=one) for name, one in labels.items()}
    found["operator"] = Place(namespace=SYSTEM_NAMESPACE, labels=template["metadata"]["labels"])
    found["monitoring"] = Place(namespace="monitoring")
    found["client"] = Place(namespace=TEAM, labels={"app": "client"})
    return found


def callers(policies: list[dict[str, Any]], places: dict[str, Place], target: str, port: int) -> set[str]:
    """Return who comes through to a port of a pod."""
    return {name for name, one in places.items() if connects(policies, one, places[target], port=port)}


def test_of_an_engine_pod_only_the_guard_is_open(policies: list[Any], places: dict[str, Place]) -> None:
    without_network = {"limited trial", "trial", "other trial", "other limited trial"}

    # The team's limited trials have a policy of their own; those of the other team have none here.
    assert callers(policies, places, "engine", ENGINE_PORT) >= set(places) - without_network
    assert "limited trial" not in callers(policies, places, "engine", ENGINE_PORT)
    assert callers(policies, places, "engine", SIDECAR_PORT) == {"operator", "monitoring"}
    assert callers(policies, places, "engine", ANY_PORT) == set()


def test_the_operator_hears_pods_of_ours_and_prometheus(policies: list[Any], places: dict[str, Place]) -> None:
    expected = {"engine", "training", "runner", "other engine", "other training", "other runner"}

    assert callers(policies, places, "operator", OPERATOR_PORT) == {*expected, "operator", "monitoring"}
    assert callers(policies, places, "operator", ANY_PORT) == set()


def test_pods_of_trainings_reach_each_other_in_their_namespace(policies: list[Any], places: dict[str, Place]) -> None:
    assert callers(policies, places, "training", ANY_PORT) == {"training"}
    assert callers(policies, places, "training", METRICS_PORT) == {"training", "monitoring"}


def test_only_trials_of_its_namespace_reach_a_runner(policies: list[Any], places: dict[str, Place]) -> None:
    assert callers(policies, places, "runner", ANY_PORT) == {"trial"}


@pytest.mark.parametrize("target", ["trial", "limited trial"])
def test_nobody_connects_to_a_trial(policies: list[Any], places: dict[str, Place], target: str) -> None:
    assert callers(policies, places, target, ANY_PORT) == set()


def test_trials_with_an_open_network_reach_what_is_outside_and_names(
    policies: list[Any], places: dict[str, Place]
) -> None:
    trial = places["trial"]

    assert all(connects(policies, trial, place, port=443) for place in (OUTSIDE, OUTSIDE_6))
    assert not connects(policies, trial, API_SERVER, port=443)
    assert not connects(policies, trial, Place(address="fd00::1"), port=443)
    assert connects(policies, trial, API_SERVER, port=53, protocol="UDP")
    for name in ("engine", "training", "operator", "client", "other engine"):
        assert not connects(policies, trial, places[name], port=ENGINE_PORT)


def test_limited_trials_reach_nothing_though_policies_add_up(policies: list[Any], places: dict[str, Place]) -> None:
    limited = places["limited trial"]

    assert not connects(policies, limited, OUTSIDE, port=443)
    assert not connects(policies, limited, API_SERVER, port=53, protocol="UDP")
    assert not connects(policies, limited, places["runner"], port=ANY_PORT)


def test_without_blocks_the_network_of_trials_is_as_their_tasks_want_it(places: dict[str, Place]) -> None:
    values = {**VALUES, "networkPolicy": {"enabled": True}}
    policies = [one for one in rendered(OPERATOR, values) if one["kind"] == "NetworkPolicy"]

    assert connects(policies, places["trial"], API_SERVER, port=443)
    assert callers(policies, places, "trial", ANY_PORT) == set()
