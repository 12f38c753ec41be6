"""Network modes of tasks as NetworkPolicies, and what becomes of a run whose policies do not hold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode
from harbor.models.task.config import NetworkPolicy as TaskNetwork
from unit.agent.conftest import write_task
from whetstone_agent.environment.cluster import Runner
from whetstone_agent.environment.enforcement import Enforcement
from whetstone_agent.environment.errors import PodStartError
from whetstone_agent.environment.manifest import pod_labels
from whetstone_agent.environment.network import NetworkLimit, limits_network, network_limit
from whetstone_agent.environment.preflight import judge_network
from whetstone_agent.failure import RunFailure
from whetstone_api.benchmark_suite import NetworkLimits, TrialEnvironment
from whetstone_api.vocabulary import Label, Reason

RUNNER = Runner(namespace="team", pod_name="runner", pod_uid="u-1")


async def resolver(name: str) -> Sequence[str]:
    """Know two hosts at one address."""
    if name == "nowhere.example":
        raise OSError("Name or service not known")
    return ("192.0.2.7", "2001:db8::7") if name == "a.example" else ("192.0.2.7",)


async def limit(*hosts: str) -> NetworkLimit:
    """Return the limit of an allowlist, or of no network where nothing is allowed."""
    mode = NetworkMode.ALLOWLIST if hosts else NetworkMode.NO_NETWORK
    found = await network_limit(TaskNetwork(network_mode=mode, allowed_hosts=list(hosts)), resolver)
    assert found is not None
    return found


async def test_an_open_network_has_no_policy() -> None:
    assert await network_limit(TaskNetwork(), resolver) is None


async def test_no_network_lets_nothing_in_or_out() -> None:
    spec = (await limit()).policy(runner=RUNNER, benchmark_run="run")["spec"]
    assert (spec["policyTypes"], spec["ingress"], spec["egress"]) == (["Ingress", "Egress"], [], [])


async def test_an_allowlist_lets_out_to_its_addresses_and_pins_its_names() -> None:
    found = await limit("198.51.100.0/24", "192.0.2.1", "a.example", "b.example")
    (rule,) = found.policy(runner=RUNNER, benchmark_run="run")["spec"]["egress"]
    blocks = {peer["ipBlock"]["cidr"] for peer in rule["to"]}
    assert blocks == {"198.51.100.0/24", "192.0.2.1/32", "192.0.2.7/32", "2001:db8::7/128"}
    assert found.host_aliases() == [
        {"ip": "192.0.2.7", "hostnames": ["a.example", "b.example"]},
        {"ip": "2001:db8::7", "hostnames": ["a.example"]},
    ]


async def test_a_name_without_an_address_is_named() -> None:
    with pytest.raises(PodStartError, match=r"'nowhere\.example' has no address"):
        await limit("nowhere.example")


async def test_the_policy_selects_the_pods_of_its_key_and_goes_with_its_runner() -> None:
    found = await limit("192.0.2.1")
    policy = found.policy(runner=RUNNER, benchmark_run="run")
    selected = policy["spec"]["podSelector"]["matchLabels"]
    assert selected[Label.TRIAL_NETWORK.value] == found.key(RUNNER)
    assert selected.items() <= {**pod_labels("run"), Label.TRIAL_NETWORK.value: found.key(RUNNER)}.items()
    assert policy["metadata"]["ownerReferences"][0]["uid"] == "u-1"


async def test_equal_limits_share_a_policy_and_others_do_not() -> None:
    assert (await limit("192.0.2.1")).key(RUNNER) == (await limit("192.0.2.1/32")).key(RUNNER)
    keys = {(await limit()).key(RUNNER), (await limit("192.0.2.1")).key(RUNNER), (await limit("192.0.2.2")).key(RUNNER)}
    assert len(keys) == 3
    assert (await limit()).key(RUNNER) != (await limit()).key(replace(RUNNER, pod_uid="u-2"))


@pytest.mark.parametrize("section", ["environment", "agent", "verifier"])
def test_a_task_with_any_limited_phase_is_known(tmp_path: Path, section: str) -> None:
    task = write_task(tmp_path, "task")
    assert not limits_network(task)
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(text.replace(f"[{section}]", f'[{section}]\nnetwork_mode = "no-network"'))
    assert limits_network(task)


@pytest.mark.parametrize(
    ("found", "words"), [(Enforcement.OPEN, "came through"), (Enforcement.UNKNOWN, "could not be measured")]
)
def test_a_run_whose_limits_do_not_hold_is_refused_unless_it_says_otherwise(found: Enforcement, words: str) -> None:
    with pytest.raises(RunFailure, match=words) as failure:
        judge_network(None, ["task-1"], found)
    assert failure.value.reason is Reason.NETWORK_NOT_ENFORCED
    assert "task-1" in failure.value.message
    assert "BestEffort" in failure.value.message
    judge_network(TrialEnvironment(network_limits=NetworkLimits.BEST_EFFORT), ["task-1"], found)


def test_a_run_whose_limits_hold_goes_on() -> None:
    judge_network(None, ["task-1"], Enforcement.ENFORCED)
