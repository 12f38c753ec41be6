"""What users may lay over the engine pods, and what they may not."""

import copy
from typing import Any

import pytest
from unit.operator.objects import SETTINGS, model_server
from whetstone_operator.controllers.rollout import restart_causes
from whetstone_operator.resources.modelserver import build_deployment, build_template, pod_selector
from whetstone_operator.resources.overlay import OverlayError, merge

CACHE = {"name": "kernels", "persistentVolumeClaim": {"claimName": "kernels"}}
SHIPPER: dict[str, Any] = {"name": "shipper", "image": "r/shipper:1", "ports": [{"containerPort": 9100}]}
GOOD: dict[str, Any] = {
    "nodeSelector": {"env": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}],
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {"supplementalGroups": [44]},
    "volumes": [CACHE, {"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
    "initContainers": [{"name": "warm", "image": "r/warm:1"}],
    "containers": [
        {
            "name": "engine",
            "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
            "resources": {"claims": [{"name": "gpu"}]},
            "volumeMounts": [{"name": "kernels", "mountPath": "/tmp/triton"}],
        },
        {"name": "sidecar", "resources": {"limits": {"memory": "2Gi"}}},
        {**SHIPPER, "securityContext": {"readOnlyRootFilesystem": True}},
    ],
}


def template(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    overlay = {"metadata": metadata, **({"spec": spec} if spec is not None else {})}
    return build_template(model_server(podTemplate=overlay), SETTINGS)


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in [*pod["initContainers"], *pod["containers"]] if item["name"] == name)


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good overlay with a value at a path such as `containers.0.env`."""
    spec = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    node: Any = spec
    for step in parents:
        node = node[int(step) if isinstance(node, list) else step]
    node[int(last) if isinstance(node, list) else last] = value
    return spec


def test_a_server_without_an_overlay_has_the_pods_it_always_had() -> None:
    plain = build_template(model_server(), SETTINGS)
    assert "annotations" not in plain["metadata"]
    assert set(plain) == {"metadata", "spec"}


def test_every_part_of_an_overlay_arrives_and_ours_stays() -> None:
    pod, plain = template(GOOD)["spec"], build_template(model_server(), SETTINGS)["spec"]
    assert pod["nodeSelector"] == {"env": "gpu"}
    assert pod["tolerations"] == GOOD["tolerations"]
    assert pod["securityContext"] == {**plain["securityContext"], "supplementalGroups": [44]}
    assert [one["name"] for one in pod["containers"]] == ["engine", "sidecar", "shipper"]
    assert [one["name"] for one in pod["initContainers"]] == ["guard", "warm"]
    assert pod["volumes"] == [*plain["volumes"], *GOOD["volumes"]]
    engine, before = container(pod, "engine"), container(plain, "engine")
    assert engine["env"] == [*before["env"], {"name": "OMP_NUM_THREADS", "value": "4"}]
    assert engine["volumeMounts"] == [*before["volumeMounts"], {"name": "kernels", "mountPath": "/tmp/triton"}]
    assert {**engine, "env": 0, "volumeMounts": 0, "resources": 0} == {
        **before,
        "env": 0,
        "volumeMounts": 0,
        "resources": 0,
    }
    assert container(pod, "sidecar")["resources"] == {
        "requests": {"cpu": "20m", "memory": "128Mi"},
        "limits": {"memory": "2Gi"},
    }


def test_a_users_container_is_restricted_without_saying_so() -> None:
    security = container(template(GOOD)["spec"], "shipper")["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_labels_and_annotations_arrive_and_the_selector_stays() -> None:
    metadata = template(labels={"team": "a"}, annotations={"example.com/x": "1"})["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"]["example.com/x"] == "1"
    assert pod_selector(model_server()).items() <= metadata["labels"].items()


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("name", ["whetstone.dev/model-server", "whetstone.dev/pod-template"])
def test_our_labels_and_annotations_cannot_be_given(kind: str, name: str) -> None:
    with pytest.raises(OverlayError, match=rf"spec\.podTemplate\.metadata\.{kind}\[{name}\]: is set by Whetstone"):
        template(**{kind: {name: "x"}})


def test_labels_of_kubernetes_that_we_set_cannot_be_given() -> None:
    with pytest.raises(OverlayError, match="managed-by"):
        template(labels={"app.kubernetes.io/managed-by": "x"})


@pytest.mark.parametrize(
    ("path", "value", "where", "words"),
    [
        ("terminationGracePeriodSeconds", 5, "terminationGracePeriodSeconds", "set that"),
        ("serviceAccountName", "admin", "serviceAccountName", "no service account"),
        ("automountServiceAccountToken", True, "automountServiceAccountToken", "no service account"),
        ("hostNetwork", True, "hostNetwork", "must not be set"),
        ("hostPID", True, "hostPID", "must not be set"),
        ("hostIPC", True, "hostIPC", "must not be set"),
        ("hostUsers", True, "hostUsers", "must not be set"),
        ("shareProcessNamespace", True, "shareProcessNamespace", "must not be set"),
        ("nodeName", "n1", "nodeName", "use nodeSelector"),
        ("restartPolicy", "Never", "restartPolicy", "must not be set"),
        ("activeDeadlineSeconds", 1, "activeDeadlineSeconds", "must not be set"),
        ("securityContext.runAsUser", 0, "securityContext.runAsUser", "must not be set"),
        ("securityContext.sysctls", [], "securityContext.sysctls", "must not be set"),
        ("volumes.0", {"name": "h", "hostPath": {"path": "/"}}, "volumes[h].hostPath", "must not be set"),
        ("volumes.0.name", "access", "volumes[access]", "choose another"),
        (
            "volumes.1.projected.sources.0",
            {"serviceAccountToken": {"path": "t"}},
            "volumes[all].projected.sources[0]",
            "no token",
        ),
        ("containers.0.command", ["sh"], "containers[engine].command", "must not be set"),
        ("containers.0.args", ["x"], "containers[engine].args", "must not be set"),
        ("containers.0.image", "x", "containers[engine].image", "must not be set"),
        ("containers.0.ports", [], "containers[engine].ports", "must not be set"),
        ("containers.0.livenessProbe", {}, "containers[engine].livenessProbe", "must not be set"),
        ("containers.0.lifecycle", {}, "containers[engine].lifecycle", "must not be set"),
        ("containers.0.securityContext", {}, "containers[engine].securityContext", "must not be set"),
        ("containers.0.envFrom", [], "containers[engine].envFrom", "must not be set"),
        ("containers.0.resources", {"limits": {"a/b": 1}}, "containers[engine].resources", "set spec.resources"),
        ("containers.0.env.0.name", "LD_PRELOAD", "containers[engine].env[LD_PRELOAD]", "leave it out"),
        ("containers.0.env.0.name", "PYTHONPATH", "containers[engine].env[PYTHONPATH]", "leave it out"),
        ("containers.1.env", [], "containers[sidecar].env", "must not be set"),
        ("containers.1.volumeMounts", [], "containers[sidecar].volumeMounts", "must not be set"),
        ("initContainers.0", {"name": "guard", "args": []}, "initContainers[guard].args", "must not be set"),
        ("initContainers.0.name", "engine", "initContainers[engine]", "choose another"),
        ("containers.0.volumeMounts.0.name", "access", "containers[engine].volumeMounts[/tmp/triton]", "adds"),
        (
            "containers.2.volumeMounts",
            [{"name": "access", "mountPath": "/t"}],
            "containers[shipper].volumeMounts[/t]",
            "adds",
        ),
        *(
            ("containers.0.volumeMounts.0.mountPath", place, f"containers[engine].volumeMounts[{place}]", words)
            for place, words in (
                ("/etc", "stands in the way"),
                ("/tmp", "stands in the way"),
                ("/whetstone/guard-root/x", "stands in the way"),
                ("/", "stands in the way"),
                ("/adapters/", "stands in the way"),
                ("/data/../etc", "plain absolute path"),
                ("data", "plain absolute path"),
            )
        ),
        (
            "containers.2.securityContext",
            {"privileged": True},
            "containers[shipper].securityContext.privileged",
            "must not be set",
        ),
        ("containers.2.securityContext", {"runAsUser": 0}, "containers[shipper].securityContext", "as root"),
        (
            "containers.2.securityContext",
            {"capabilities": {"add": ["ALL"]}},
            "containers[shipper].securityContext.capabilities",
            "must not be set",
        ),
        ("containers.2.ports.0.containerPort", 8000, "containers[shipper].ports[0]", "port of container engine"),
        ("containers.2.ports.0.hostPort", 80, "containers[shipper].ports[0]", "port of the node"),
        ("containers.2.stdin", True, "containers[shipper].stdin", "must not be set"),
        ("containers.2.name", "engine", "containers[engine]", "twice"),
        ("containers.2", {"image": "x"}, "containers[2]", "needs name"),
        ("nodeSelector", None, "nodeSelector", "must not be null"),
        ("affinity", {"$patch": "delete"}, "affinity.$patch", "directives"),
    ],
)
def test_what_users_may_not_decide_is_named_by_its_path(path: str, value: Any, where: str, words: str) -> None:
    with pytest.raises(OverlayError) as raised:
        template(changed(path, value))
    assert raised.value.path == f"spec.podTemplate.spec.{where}"
    assert words in raised.value.problem


def paths(node: Any, path: str = "") -> list[str]:
    """Return the path of every value below a node."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, value in items for found in (f"{path}{key}", *paths(value, f"{path}{key}."))]


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [1], [[]], [{}], {"a": 1}, {"a": None}], ids=str)
def test_an_overlay_of_any_shape_is_laid_over_or_refused_by_its_path(value: Any) -> None:
    def refused_at(path: str) -> str:
        try:
            template(changed(path, copy.deepcopy(value)))
        except OverlayError as error:
            return error.path
        return ""

    told = [refused_at(path) for path in paths(GOOD)]
    assert all(path.startswith("spec.podTemplate.spec") for path in told if path)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
        {"containers": [{"name": "helper", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    ],
)
def test_no_pod_more_is_asked_for_where_an_overlay_asks_for_accelerators(spec: dict[str, Any]) -> None:
    deployment = build_deployment(model_server(podTemplate={"spec": spec}), SETTINGS)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_changed_overlay_is_a_restart_with_its_cause() -> None:
    old, new = template(GOOD), template(changed("nodeSelector", {"env": "other"}))
    assert restart_causes([old], new) == ["podTemplate"]
    assert restart_causes([old], build_template(model_server(), SETTINGS))[0] == "podTemplate"
    assert restart_causes([old], template(copy.deepcopy(GOOD))) == []


def test_merging_changes_neither_side() -> None:
    below = {"a": {"b": 1}, "env": [{"name": "x", "value": "1"}], "tolerations": [1], "args": [1]}
    above = {"a": {"c": 2}, "env": [{"name": "x", "value": "2"}], "tolerations": [2], "args": [2]}
    kept = copy.deepcopy((below, above))
    assert merge(below, above) == {
        "a": {"b": 1, "c": 2},
        "env": [{"name": "x", "value": "2"}],
        "tolerations": [1, 2],
        "args": [2],
    }
    assert (below, above) == kept
