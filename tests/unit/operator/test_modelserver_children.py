"""The children of a ModelServer as they go to the API server."""

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.operator.objects import SETTINGS, digest, model_server
from whetstone_operator.resources.access import access_policy, build_access, runner_key
from whetstone_operator.resources.engine_containers import engine_arguments
from whetstone_operator.resources.lifetimes import KEEP_ALIVE_SECONDS, lifetimes
from whetstone_operator.resources.modelserver import build_deployment, build_disruption_budget, build_service
from whetstone_server.install import install_guard


def pod_spec(**spec: Any) -> dict[str, Any]:
    deployment = build_deployment(model_server(**spec), SETTINGS)
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    every = [*pod["initContainers"], *pod["containers"]]
    return next(item for item in every if item["name"] == name)


def test_pod_meets_the_restricted_standard() -> None:
    pod = pod_spec()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for item in [*pod["initContainers"], *pod["containers"]]:
        assert item["securityContext"]["allowPrivilegeEscalation"] is False
        assert item["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert item["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_mount_has_its_volume_and_no_volume_is_unused() -> None:
    pod = pod_spec(adapterStores=[{"name": "a", "claimName": "my.adapters"}, {"name": "m", "claimName": "models"}])
    volumes = [volume["name"] for volume in pod["volumes"]]
    mounted = {mount["name"] for item in [*pod["initContainers"], *pod["containers"]] for mount in item["volumeMounts"]}
    assert len(volumes) == len(set(volumes))
    assert mounted == set(volumes)


def test_adapters_and_aliases_never_change_the_pod_template() -> None:
    plain = build_deployment(model_server(), SETTINGS)["spec"]["template"]
    hot = model_server(
        adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}],
        aliases=[{"name": "assistant", "targets": [{"adapter": "tuned"}]}],
        replicas=3,
    )
    assert build_deployment(hot, SETTINGS)["spec"]["template"] == plain


def test_engine_sees_no_store_and_the_sidecar_cannot_write_into_one() -> None:
    pod = pod_spec(adapterStores=[{"name": "a", "claimName": "adapters"}])
    engine = {mount["mountPath"] for mount in container(pod, "engine")["volumeMounts"]}
    sidecar = {mount["mountPath"]: mount.get("readOnly") for mount in container(pod, "sidecar")["volumeMounts"]}
    assert "/mnt/claims/adapters" not in engine
    assert sidecar["/mnt/claims/adapters"] is True
    assert sidecar["/mnt/claims/models"] is True


def test_secret_of_a_store_reaches_the_sidecar_alone() -> None:
    pod = pod_spec(adapterStores=[{"name": "s", "secretRef": {"name": "my.keys"}}])
    place = "/etc/whetstone/secrets/my.keys"
    assert place in {mount["mountPath"] for mount in container(pod, "sidecar")["volumeMounts"]}
    for other in ("engine", "guard"):
        assert place not in {mount["mountPath"] for mount in container(pod, other)["volumeMounts"]}
    volume = next(one for one in pod["volumes"] if one.get("secret", {}).get("secretName") == "my.keys")
    assert volume["secret"]["optional"] is True
    assert not any("secret-" in one["name"] for one in pod_spec()["volumes"])


FAR = {"uri": "hf://o/r@" + "0" * 40, "secretRef": {"name": "hub"}}


def far_pod(*, cache: str | None = None, **spec: Any) -> dict[str, Any]:
    """Return the pod of a server whose model is fetched."""
    model = {"source": FAR, "servedName": "base", **({"cache": {"claimName": cache}} if cache else {})}
    return pod_spec(model=model, **spec)


def mounts(pod: dict[str, Any], name: str) -> dict[str, bool]:
    """Return whether each mount of a container is read-only, by its place."""
    return {one["mountPath"]: bool(one.get("readOnly")) for one in container(pod, name)["volumeMounts"]}


def test_fetched_model_is_written_by_its_container_and_read_by_the_engine() -> None:
    pod = far_pod()
    arguments = container(pod, "fetch-model")["args"]
    assert arguments[:3] == ["fetch-model", f"--uri={FAR['uri']}", "--root=/mnt/models"]
    assert container(pod, "engine")["args"][0].startswith("/mnt/models/")
    assert [mounts(pod, name)["/mnt/models"] for name in ("fetch-model", "engine", "sidecar")] == [False, True, True]
    assert [one["name"] for one in pod_spec()["initContainers"]] == ["guard"]


def test_secret_of_the_model_reaches_its_container_alone() -> None:
    pod = far_pod()
    place = "/etc/whetstone/secrets/hub"
    assert f"--secret={place}" in container(pod, "fetch-model")["args"]
    assert [name for name in ("fetch-model", "engine", "sidecar", "guard") if place in mounts(pod, name)] == [
        "fetch-model"
    ]


def test_cache_is_a_claim_that_outlives_pods() -> None:
    pod = far_pod(cache="cache")
    volume = next(one for one in pod["volumes"] if one.get("persistentVolumeClaim"))
    assert volume["persistentVolumeClaim"]["claimName"] == "cache"
    assert volume["name"] in {one["name"] for one in container(pod, "fetch-model")["volumeMounts"]}
    assert not any(one["name"] == "models" for one in pod["volumes"])


def test_model_of_an_image_is_mounted_and_not_fetched() -> None:
    uri = f"oci://registry.example.com/models/base@{digest('a')}"
    model = {"source": {"uri": uri}, "imageVolume": {"subPath": "models/base"}, "servedName": "base"}
    pod = pod_spec(model=model)
    [volume] = [one for one in pod["volumes"] if "image" in one]
    assert volume["image"] == {"reference": uri.removeprefix("oci://"), "pullPolicy": "IfNotPresent"}
    assert container(pod, "engine")["args"][0] == "/mnt/models/models/base"
    assert [mounts(pod, name)["/mnt/models"] for name in ("engine", "sidecar")] == [True, True]
    assert [one["name"] for one in pod["initContainers"]] == ["guard"]
    whole = pod_spec(model={**model, "imageVolume": {}})
    assert container(whole, "engine")["args"][0] == "/mnt/models"


def test_other_content_lies_in_another_folder() -> None:
    def folder(**source: str) -> str:
        return str(container(pod_spec(model={"source": source, "servedName": "b"}), "engine")["args"][0])

    uri = "s3://bucket/m"
    found = {folder(uri=uri, digest=digest("a")), folder(uri=uri, digest=digest("b")), folder(uri=str(FAR["uri"]))}
    assert len(found) == 3


def test_mounts_of_a_fetched_model_have_their_volumes() -> None:
    stores = [{"name": "s", "secretRef": {"name": "hub"}}, {"name": "a", "claimName": "cache"}]
    for pod in (far_pod(), far_pod(cache="cache"), far_pod(cache="cache", adapterStores=stores)):
        volumes = [volume["name"] for volume in pod["volumes"]]
        every = [*pod["initContainers"], *pod["containers"]]
        assert len(volumes) == len(set(volumes))
        assert {mount["name"] for item in every for mount in item["volumeMounts"]} == set(volumes)


def test_startup_probe_lasts_as_long_as_the_spec_allows() -> None:
    probe = container(pod_spec(startup={"timeoutSeconds": 602}), "engine")["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 602


def test_users_arguments_come_last() -> None:
    arguments = engine_arguments(
        model_server(engine={"dtype": "Float32", "maxModelLength": 1024, "extraArgs": ["--enforce-eager"]})
    )
    assert arguments[0] == "/mnt/claims/models/base"
    assert "--dtype=float32" in arguments
    assert "--max-model-len=1024" in arguments
    assert arguments[-1] == "--enforce-eager"


def test_drain_sets_every_limit_of_a_pods_end() -> None:
    pod = pod_spec(drain={"seconds": 600})
    assert "--shutdown-timeout=600" in container(pod, "engine")["args"]
    for name in ("engine", "sidecar"):
        limit = leave_limit(container(pod, name))
        assert limit > 600
        assert pod["terminationGracePeriodSeconds"] > limit


def leave_limit(item: dict[str, Any]) -> int:
    command = item["lifecycle"]["preStop"]["exec"]["command"]
    return next(int(part.removeprefix("--limit=")) for part in command if part.startswith("--limit="))


@pytest.mark.parametrize("name", ["engine", "sidecar"])
def test_hook_of_a_pods_end_exists_in_its_container(name: str, tmp_path: Path) -> None:
    install_guard(tmp_path)
    token = tmp_path / "token"
    token.write_text("s3cret")
    command = container(pod_spec(), name)["lifecycle"]["preStop"]["exec"]["command"]
    paths = {"PYTHONPATH": str(tmp_path)} if name == "engine" else {}
    environment = {**os.environ, **paths, "WHETSTONE_TOKEN_FILE": str(token)}
    # Nothing listens there, so the hook has nobody to wait for.
    told = subprocess.run(
        [sys.executable, *command[1:], "--port=1"], env=environment, capture_output=True, check=False, timeout=60
    )
    assert told.returncode == 0, told.stderr.decode()


def test_pods_end_waits_for_idle_connections() -> None:
    limits = lifetimes(model_server().spec)
    assert min(limits.leave_least, limits.leave_quiet) > KEEP_ALIVE_SECONDS
    told = {"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": str(KEEP_ALIVE_SECONDS)}
    assert told in container(pod_spec(), "engine")["env"]


def test_startup_timeout_sets_every_limit_of_a_start() -> None:
    deployment = build_deployment(model_server(startup={"timeoutSeconds": 7200}), SETTINGS)
    engine = container(deployment["spec"]["template"]["spec"], "engine")
    assert {"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "7200"} in engine["env"]
    assert deployment["spec"]["progressDeadlineSeconds"] > 7200


@pytest.mark.parametrize(
    ("resources", "steps"),
    [
        (None, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"limits": {"cpu": "2", "memory": "4Gi"}}, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"limits": {"nvidia.com/gpu": "1"}}, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"requests": {"amd.com/gpu": "1"}}, {"maxSurge": 0, "maxUnavailable": 1}),
    ],
)
def test_no_pod_more_is_asked_for_where_accelerators_are(
    resources: dict[str, Any] | None, steps: dict[str, int]
) -> None:
    fields = {} if resources is None else {"resources": resources}
    deployment = build_deployment(model_server(**fields), SETTINGS)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == steps


def test_no_pod_more_is_asked_for_where_parallelism_asks_for_accelerators() -> None:
    deployment = build_deployment(model_server(engine={"parallelism": {"tensor": 2}}), SETTINGS)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_node_drains_take_one_pod_at_a_time() -> None:
    server = model_server(replicas=3)
    budget = build_disruption_budget(server)["spec"]
    labels = build_deployment(server, SETTINGS)["spec"]["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def test_service_selects_what_the_deployment_makes() -> None:
    server = model_server()
    labels = build_deployment(server, SETTINGS)["spec"]["template"]["metadata"]["labels"]
    assert build_service(server)["spec"]["selector"].items() <= labels.items()


def test_keys_and_limits_never_change_the_pod_template() -> None:
    keys = [{"name": "team", "secretRef": {"name": "keys", "key": "team"}}]
    ruled = model_server(apiKeys=keys, limits={"requestBytes": 4096})
    plain = build_deployment(model_server(), SETTINGS)["spec"]["template"]
    assert build_deployment(ruled, SETTINGS)["spec"]["template"] == plain


def test_engine_sees_hashes_of_keys_and_no_key() -> None:
    server = model_server(apiKeys=[{"name": "team", "secretRef": {"name": "keys", "key": "team"}}])
    policy = access_policy(server, {"team": "k-team"}, token="t")
    volume = next(one for one in pod_spec()["volumes"] if one["name"] == "access")
    items = [{"key": key, "path": key} for key in ("token", "access.json")]
    assert volume["secret"] == {"secretName": "server-access", "items": items}
    secret = build_access(server, policy, token="t")
    text = base64.b64decode(secret["data"]["access.json"]).decode()
    assert "k-team" not in text
    assert runner_key("t") not in text
    assert base64.b64decode(secret["data"]["runner-key"]).decode() == runner_key("t")
    assert [key.sha256 for key in policy.keys] == [
        hashlib.sha256(value.encode()).hexdigest() for value in ("k-team", runner_key("t"))
    ]
    assert runner_key("t") != runner_key("u")
