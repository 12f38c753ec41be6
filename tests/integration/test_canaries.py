"""No value of a Secret gets out of it: not into objects, Events, the operator's log, metrics or the audit log."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import DATASET, World
from support.canaries import canary, seen
from support.place_servers import Served, hub_server
from support.waiting import eventually
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
LOGIN = json.dumps({"auths": {"registry.test": {"username": "u", "password": canary("registry")}}})
SECRETS = {
    "hub": {"HF_TOKEN": canary("hub")},
    "bucket": {"AWS_ACCESS_KEY_ID": canary("key id"), "AWS_SECRET_ACCESS_KEY": canary("key")},
    "half": {"AWS_SECRET_ACCESS_KEY": canary("half")},
    "registry": {".dockerconfigjson": LOGIN},
    "web": {"username": canary("user"), "password": canary("password")},
    "keys": {
        "team": canary("team"),
        # The operator refuses it, and must say so without repeating it.
        "spaced": f"{canary('spaced')} word",
        "judge": canary("judge"),
        "api": canary("api"),
        "search": f"ApiKey {canary('search')}",
        "scorer": canary("scorer"),
        "overseer": canary("overseer"),
        "witness": canary("witness"),
        "tracker": canary("tracker"),
    },
}
NAMES = ("hub", "key id", "key", "half", "registry", "user", "password", "team", "spaced", "judge", "api", "search")
PLANTED = {name: canary(name) for name in (*NAMES, "scorer", "overseer", "witness", "tracker")}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    """A hub that takes the token, and one repository whose branch it does not know."""
    (tmp_path / "hub" / "owner" / "model").mkdir(parents=True)
    with hub_server(tmp_path / "hub") as served:
        served.authorization = f"Bearer {canary('hub')}"
        yield served


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The operator's output."""
    return tmp_path / "operator.log"


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, log: Path, hub: Served) -> Iterator[OperatorProcess]:
    environment = {"WHETSTONE_HUB_ENDPOINT": hub.url, "WHETSTONE_LOG_LEVEL": "DEBUG"}
    process = OperatorProcess(kubeconfig=operator_kubeconfig, namespace=namespace, log=log, environment=environment)
    process.start()
    yield process
    process.stop()


def key(name: str) -> dict[str, Any]:
    return {"secretRef": {"name": "keys", "key": name}}


def plant(world: World) -> None:
    """Create every Secret, and all objects that name one, right and wrong ones."""
    world.claims()
    world.claims("company")
    world.account()
    for name, values in SECRETS.items():
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
        world.api.create(body, namespace=world.namespace)
    store = {"name": "store", "secretRef": {"name": "bucket"}}
    world.serve(apiKeys=[{"name": "team", **key("team")}], adapterStores=[store])
    world.serve("spaced", apiKeys=[{"name": "spaced", **key("spaced")}])
    for name, branch in (("fetched", "main"), ("unknown", "nowhere")):
        source = {"uri": f"hf://owner/model@{branch}", "secretRef": {"name": "hub"}}
        world.serve(name, model={"source": source, "servedName": "base"})
    dataset = {"name": "d", "source": {"uri": "s3://data/rows.jsonl", "secretRef": {"name": "bucket"}}}
    push = {"name": "far", "uri": "oci://registry.test/team/a", "secretRef": {"name": "registry"}}
    tracker = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "tracker"}}}
    world.train(
        datasets=[dataset],
        output={"adapter": {"uri": "pvc://adapters/a"}, "push": [push]},
        podTemplate={"spec": {"containers": [{"name": "main", "env": [tracker]}]}},
    )
    half = {"name": "d", "source": {"uri": "s3://data/rows.jsonl", "secretRef": {"name": "half"}}}
    world.train("half", datasets=[half], output={"adapter": {"uri": "pvc://adapters/half"}})


def measure(world: World) -> None:
    """Create a run of each suite with all keys that it may have."""
    tasks = {"uri": "https://tasks.test/set.tar", "secretRef": {"name": "web"}}
    judge = {"model": "j", "url": "https://judge.test/v1"}
    target = {"modelServerRef": {"name": "server"}, "shared": True}
    world.benchmark(target=target, suite={"harbor": {"dataset": tasks}}, judge={**judge, **key("judge")})
    search = {"url": "https://search.test", **key("search")}
    suite = {
        "environment": {"uri": "pvc://company/company"},
        "instances": {"file": "test.json"},
        "api": key("api"),
        "retriever": {"elasticsearch": search},
        "scorer": {"kind": "Judge", "judge": {**judge, **key("scorer")}},
        "overseer": {**judge, **key("overseer")},
        "expert": {"mode": "Informed", "witness": {**judge, **key("witness")}},
    }
    world.benchmark("tools", target=target, suite={"toolUse": suite})


def made_by_the_operator(world: World) -> dict[str, str]:
    """Return the values that it makes itself: its token for a server, and the key of runners."""
    made = world.get("Secret", "server-access")["data"]
    return {"guard token": _decoded(made["token"]), "runner key": _decoded(made["runner-key"])}


def _decoded(value: str) -> str:
    return base64.b64decode(value).decode()


def everything(world: World) -> dict[str, str]:
    """Return all objects of the namespace as text, but Secrets."""
    texts = {}
    lists = [("/api/v1", "v1")]
    for group in world.api.raw("GET", "/apis")["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        lists.append((f"/apis/{version}", version))
    for path, version in lists:
        for one in world.api.raw("GET", path)["resources"]:
            if one["namespaced"] and "list" in one["verbs"] and one["name"] != "secrets":
                found = world.api.raw("GET", f"{path}/namespaces/{world.namespace}/{one['name']}")
                texts[f"{version} {one['name']}"] = json.dumps(found)
    return texts


def test_value_of_no_secret_gets_out(
    world: World, operator: OperatorProcess, control_plane: ControlPlane, log: Path, hub: Served
) -> None:
    plant(world)
    world.start_engines()
    world.wait_reason("ModelServer", "spaced", "SecretNotFound")
    world.wait_reason("ModelServer", "unknown", "SourceNotFound")
    world.wait_reason("LoRATrainingJob", "half", "SecretNotFound")
    measure(world)
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    for owner, stage in (("train", "train"), ("run", "run"), ("tools", "run")):
        job = world.wait_job(owner, stage)
        eventually(lambda job=job: world.pods(job), what=f"a pod of {owner}")
    texts = everything(world)
    texts |= {"the log": log.read_text(), "the audit log": control_plane.audit_log.read_text()}
    texts["metrics"] = operator.exposition()

    # The hub saw the token, so the operator has read it.
    assert f"Bearer {canary('hub')}" in {one.authorization for one in hub.asked}
    assert {"apps/v1 deployments", "batch/v1 jobs", "v1 configmaps", "v1 pods", "v1 events"} <= set(texts)
    assert seen(PLANTED | made_by_the_operator(world), texts) == []
