"""What the chart's values make of the operator and of the pods that it creates."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.children import all_pods, containers_of, operators_pod, variables_of
from whetstone_dev.commands import DevError
from whetstone_dev.image_list import listed
from whetstone_operator.egress import Egress
from whetstone_operator.settings import STOCK_ENGINE_IMAGE, Settings

MIRROR = "mirror.example.com/team"
TAG = "0.1.0"
UNSLOTH = f"{MIRROR}/whetstone/trainer-unsloth:{TAG}"
IMAGES: Mapping[str, Any] = {"registry": MIRROR, "unsloth": UNSLOTH, "pullSecrets": ["login"]}
PROXY = "http://proxy.example.com:3128"
SLOW_START_SECONDS = 600
"""What starting may take on a node without a CPU to spare."""


def images_of(pods: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the images of all containers."""
    return {container["image"] for pod in pods.values() for container in containers_of(pod).values()}


def test_the_list_of_images_has_each_one_that_is_used_and_no_other() -> None:
    used = images_of(all_pods({"images": IMAGES}))

    assert {image.removeprefix(f"{MIRROR}/") for image in used} == set(listed())


def test_no_image_comes_from_elsewhere_with_a_registry_of_ones_own() -> None:
    engine = f"{MIRROR}/{STOCK_ENGINE_IMAGE.partition('/')[2]}"

    used = images_of(all_pods({"images": {**IMAGES, "engine": engine}}))

    assert engine in used
    assert all(image.startswith(f"{MIRROR}/") for image in used)


def test_all_pods_pull_with_the_secrets_and_the_policy() -> None:
    pods = all_pods({"images": {**IMAGES, "pullPolicy": "Always"}})

    assert {str(pod["imagePullSecrets"]) for pod in pods.values()} == {"[{'name': 'login'}]"}
    policies = {one["imagePullPolicy"] for pod in pods.values() for one in containers_of(pod).values()}
    assert policies == {"Always"}


def test_the_operator_uses_the_proxies_and_hands_them_on() -> None:
    variables = variables_of(
        operators_pod({"images": IMAGES, "proxy": {"https": PROXY, "except": [".example.com", "10.0.0.0/8"]}})
    )

    given = Settings.from_environment(variables).egress

    assert (given.http_proxy, given.https_proxy) == ("", PROXY)
    within = {"localhost", "127.0.0.1", ".svc", ".cluster.local", "$(KUBERNETES_SERVICE_HOST)"}
    assert within | {".example.com", "10.0.0.0/8"} <= set(given.no_proxy.split(","))
    assert variables["https_proxy"] == PROXY
    assert variables["no_proxy"] == given.no_proxy


def test_the_operator_trusts_the_authorities_and_hands_them_on() -> None:
    pod = operators_pod({"images": IMAGES, "caBundle": {"configMap": "authorities", "key": "bundle.pem"}})

    assert Settings.from_environment(variables_of(pod)).egress == Egress(
        ca_config_map="authorities", ca_key="bundle.pem"
    )
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert variables_of(pod)["SSL_CERT_FILE"] == f"{mounts['ca-bundle']}/ca.crt"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["ca-bundle"]["configMap"] == {
        "name": "authorities",
        "items": [{"key": "bundle.pem", "path": "ca.crt"}],
    }


def test_without_proxies_and_authorities_nothing_is_set() -> None:
    variables = variables_of(operators_pod({"images": IMAGES}))

    assert Settings.from_environment(variables).egress == Egress()
    assert not [name for name in variables if "PROXY" in name.upper() or "SSL" in name]


def test_a_proxy_with_a_password_is_refused() -> None:
    with pytest.raises(DevError, match="does not match pattern"):
        operators_pod({"images": IMAGES, "proxy": {"https": "http://user:word@proxy.example.com"}})


@pytest.mark.parametrize("servers", [0, 3])
def test_the_operator_is_told_how_many_servers_an_upgrade_restarts_at_a_time(servers: int) -> None:
    pod = operators_pod({"images": IMAGES, "operator": {"engineUpgrades": servers}})

    assert Settings.from_environment(variables_of(pod)).engine_upgrades == servers


def test_what_starts_slowly_is_not_killed_meanwhile() -> None:
    probed = {
        f"{container} of {pod}": fields
        for pod, spec in all_pods({"images": IMAGES}).items()
        for container, fields in containers_of(spec).items()
        if "livenessProbe" in fields
    }

    starts = {name: fields.get("startupProbe", {}) for name, fields in probed.items()}
    patience = {name: one.get("failureThreshold", 0) * one.get("periodSeconds", 0) for name, one in starts.items()}

    assert probed
    assert not [name for name, seconds in patience.items() if seconds < SLOW_START_SECONDS]
