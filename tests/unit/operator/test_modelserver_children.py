"""The children of a ModelServer as they go to the API server."""

from typing import Any

from unit.operator.objects import SETTINGS, model_server
from whetstone_operator.resources.modelserver import build_deployment, build_service, engine_arguments


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


def test_grace_period_covers_pre_stop_and_shutdown() -> None:
    pod = pod_spec()
    stop = container(pod, "engine")["lifecycle"]["preStop"]["sleep"]["seconds"]
    shutdown = next(item for item in container(pod, "engine")["args"] if item.startswith("--shutdown-timeout="))
    assert pod["terminationGracePeriodSeconds"] > stop + int(shutdown.split("=")[1])


def test_service_selects_what_the_deployment_makes() -> None:
    server = model_server()
    labels = build_deployment(server, SETTINGS)["spec"]["template"]["metadata"]["labels"]
    assert build_service(server)["spec"]["selector"].items() <= labels.items()
