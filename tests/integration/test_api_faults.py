"""The operator while its way to the API server fails: it recovers by itself, and does nothing twice."""

import itertools
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from integration.api import Api, Object, accepted
from integration.conftest import equipped
from integration.keeper import Keeper
from integration.operator_process import (
    SYSTEM_NAMESPACE,
    OperatorProcess,
    account_kubeconfig,
    account_token,
)
from integration.world import DATASET, World
from support.fault_proxy import FaultProxy
from support.machine_clock import MachineClock
from support.waiting import eventually
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
KIND = "LoRATrainingJob"
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
AS_IN_A_POD = f'mkdir -p {ACCOUNT_FOLDER} && mount --bind "$1" {ACCOUNT_FOLDER} && mount --bind "$1/hosts" /etc/hosts'
UNKNOWN_FOR = 4
"""How many writes an API server refuses before it knows the roles."""
CLUSTER_NAME = "kubernetes.default.svc"
"""Name under which pods reach the API server."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of these tests' own: they stop parts of it."""
    with ControlPlane(tmp_path_factory.mktemp("faults")) as plane:
        yield plane


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with equipped(plane) as client:
        yield client


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    """The operator's way to the API server."""
    certificate, key = plane.pki.leaf("proxy", subject="/CN=proxy", names=["IP:127.0.0.1"])
    with FaultProxy(plane.server, authority=plane.pki.folder / "ca.crt", certificate=certificate, key=key) as proxy:
        yield proxy


@contextmanager
def kept_operator(kubeconfig: Path, world: World, log: Path) -> Iterator[tuple[OperatorProcess, Keeper]]:
    operator = OperatorProcess(kubeconfig=kubeconfig, namespace=world.namespace, log=log)
    with Keeper(operator) as keeper:
        yield operator, keeper
    text = log.read_text()
    assert "Traceback" not in text, text[-6000:]


@pytest.fixture
def kept(
    plane: ControlPlane, api: Api, proxy: FaultProxy, world: World, tmp_path: Path
) -> Iterator[tuple[OperatorProcess, Keeper]]:
    """The operator behind the proxy, and what starts it again."""
    kubeconfig = account_kubeconfig(plane, api, tmp_path)
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = proxy.url
    kubeconfig.write_text(yaml.safe_dump(config))
    world.claims()
    with kept_operator(kubeconfig, world, tmp_path / "operator.log") as both:
        yield both


def train(world: World, name: str) -> None:
    world.train(name, output={"adapter": {"uri": f"pvc://adapters/{name}"}})


def probe(operator: OperatorProcess, path: str) -> int:
    """Return what a probe of the kubelet gets; 0 for no answer."""
    try:
        return httpx.get(operator.url(path), trust_env=False, timeout=5).status_code
    except httpx.HTTPError:
        return 0


def is_well(operator: OperatorProcess) -> bool:
    return (probe(operator, "healthz"), probe(operator, "readyz")) == (200, 200)


def require_each_job_once(world: World, *expected: str) -> None:
    """Check that these Jobs exist and no others ever did: a second one would have another name or uid."""
    jobs = world.api.list("Job", namespace=world.namespace)
    assert sorted(job["metadata"]["name"].rpartition("-")[0] for job in jobs) == sorted(expected)
    told = [
        event for event in world.api.list("Event", namespace=world.namespace) if event["reason"] == "SuccessfulCreate"
    ]
    created = [event["regarding"]["name"] for event in told if event["regarding"]["kind"] == "Job"]
    assert len(created) == len(set(created)), f"a Job got more than one pod: {created}"


def go_on(world: World, prepare: Object, operator: OperatorProcess) -> None:
    """Let work that began before a fault go on, and begin more; nothing is done twice."""
    accepted(lambda: world.end_well(prepare, dataset=DATASET))
    accepted(lambda: train(world, "after"))
    world.wait_job("before", "train")
    world.wait_job("after", "prepare")
    eventually(lambda: is_well(operator), what="the probes tell that all is well", seconds=60)
    require_each_job_once(world, "before-prepare", "before-train", "after-prepare")


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
def test_restart_of_a_part_of_the_control_plane_is_survived(
    part: str, plane: ControlPlane, world: World, kept: tuple[OperatorProcess, Keeper]
) -> None:
    operator, _ = kept
    train(world, "before")
    prepare = world.wait_job("before", "prepare")
    plane.processes.stop(part, grace=0.1)
    plane.start()
    go_on(world, prepare, operator)


def test_throttled_requests_are_sent_again_when_the_server_says(
    world: World, proxy: FaultProxy, kept: tuple[OperatorProcess, Keeper]
) -> None:
    operator, keeper = kept
    train(world, "before")
    prepare = world.wait_job("before", "prepare")
    numbers = itertools.count()
    proxy.refuse = lambda method, path: next(numbers) % 2 == 0
    go_on(world, prepare, operator)
    assert proxy.refused > 3
    assert keeper.exits == []
    reasons = {event["reason"] for event in world.api.list("Event", namespace=world.namespace)}
    assert "InternalError" not in reasons


def test_roles_that_a_restarted_api_server_does_not_know_yet_are_waited_for(
    world: World, proxy: FaultProxy, kept: tuple[OperatorProcess, Keeper]
) -> None:
    operator, keeper = kept
    train(world, "before")
    prepare = world.wait_job("before", "prepare")
    writes = itertools.count()
    proxy.forbid = lambda method, path: method != "GET" and "/leases" not in path and next(writes) < UNKNOWN_FOR
    proxy.break_off()
    go_on(world, prepare, operator)
    assert proxy.refused == UNKNOWN_FOR
    assert keeper.exits == []
    reasons = {event["reason"] for event in world.api.list("Event", namespace=world.namespace)}
    # A request that was under way as the connections broke off may be told, as InternalError.
    assert "ApplyRefused" not in reasons


def test_slow_api_server_slows_the_work_and_costs_no_lease(
    world: World, proxy: FaultProxy, kept: tuple[OperatorProcess, Keeper]
) -> None:
    operator, keeper = kept
    train(world, "before")
    prepare = world.wait_job("before", "prepare")
    proxy.delay = 2.0
    go_on(world, prepare, operator)
    assert keeper.exits == []


@pytest.mark.parametrize("seconds", [0.0, pytest.param(300.0, marks=pytest.mark.long)], ids=["short", "five-minutes"])
def test_cut_network_ends_the_leader_and_the_probes_say_so(
    seconds: float, world: World, proxy: FaultProxy, kept: tuple[OperatorProcess, Keeper]
) -> None:
    operator, keeper = kept
    train(world, "before")
    prepare = world.wait_job("before", "prepare")
    proxy.cut()
    eventually(lambda: keeper.exits, what="the leader stops before another one may begin")
    assert keeper.exits == [1]
    # It lives, for its own part, and does not say that it is ready to work.
    eventually(lambda: (probe(operator, "healthz"), probe(operator, "readyz")) == (200, 503), what="probes tell")
    threading.Event().wait(seconds)
    assert (probe(operator, "healthz"), probe(operator, "readyz")) == (200, 503)
    proxy.heal()
    go_on(world, prepare, operator)
    assert keeper.exits == [1]


def bound_token(api: Api, name: str) -> str:
    """Return a token of the operator's account that ends with a Secret."""
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets"
    secret = api.raw("POST", path, {"metadata": {"name": name}})
    bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret["metadata"]["uid"]}
    return account_token(api, bound_to=bound)


@pytest.mark.parametrize("hours", [2, 1], ids=["clock goes on", "clock is set back"])
def test_expired_token_is_read_again(hours: int, plane: ControlPlane, api: Api, world: World, tmp_path: Path) -> None:
    """As in a pod: the kubelet has written another token when the old one ends."""
    address = f"127.{random.randint(2, 250)}.{random.randint(1, 250)}.{random.randint(1, 250)}"
    account = tmp_path / "account"
    account.mkdir()
    (account / "ca.crt").write_text((plane.pki.folder / "ca.crt").read_text())
    (account / "namespace").write_text(SYSTEM_NAMESPACE)
    (account / "token").write_text(bound_token(api, f"first-{hours}"))
    (account / "hosts").write_text(f"{address} {CLUSTER_NAME}\n127.0.0.1 localhost\n")
    names = [f"IP:{address}", f"DNS:{CLUSTER_NAME}"]
    certificate, key = plane.pki.leaf(f"in-cluster-{hours}", subject="/CN=in-cluster", names=names)
    trusted = plane.pki.folder / "ca.crt"
    world.claims()
    clock = MachineClock(tmp_path / "time", hours=2)
    operator = OperatorProcess(
        kubeconfig=None,
        namespace=world.namespace,
        log=tmp_path / "operator.log",
        environment={"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": "443", **clock.environment},
        launcher=["unshare", "--mount", "sh", "-ec", f'{AS_IN_A_POD} && shift && exec "$@"', "sh", str(account)],
    )
    way = FaultProxy(plane.server, authority=trusted, certificate=certificate, key=key, address=address, port=443)
    with way, Keeper(operator) as keeper:
        train(world, "before")
        prepare = world.wait_job("before", "prepare")
        clock.set(hours=hours)
        first = (account / "token").read_text()
        (account / "token").write_text(bound_token(api, f"second-{hours}"))
        api.raw("DELETE", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/first-{hours}")
        eventually(lambda: is_refused(plane, first), what="the API server refuses the old token", seconds=60)
        go_on(world, prepare, operator)
        assert keeper.exits == []
    assert "Traceback" not in (tmp_path / "operator.log").read_text()


def is_refused(plane: ControlPlane, token: str) -> bool:
    command = [plane.kubectl, "--server", plane.server, "--certificate-authority", plane.pki.folder / "ca.crt"]
    asked = [*command, "--token", token, "get", "--raw", "/version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.returncode != 0 and "Unauthorized" in answer.stderr
