"""Proxies and authorities that the administrator decided on reach every container that fetches something."""

from dataclasses import replace

from support.children import containers_of, pods_of
from unit.operator.objects import SETTINGS
from whetstone_operator.egress import Egress
from whetstone_operator.resources.egress import CA_FOLDER, CA_VOLUME

PROXY = "http://proxy.example.com:3128"
PLAIN = replace(SETTINGS, unsloth_image="r/unsloth:1")
PROXIED = replace(PLAIN, egress=Egress(https_proxy=PROXY, no_proxy=".svc"))
TRUSTING = replace(PLAIN, egress=Egress(ca_config_map="authorities", ca_key="bundle.pem"))
INSIDE = {"engine", "guard", "agent"}
"""Containers that reach nothing outside the cluster: a user's agent asks the model through the runner."""


def variables_of(container: dict[str, object]) -> dict[str, str]:
    """Return the variables of a container that are given by value."""
    env = container.get("env") or []
    assert isinstance(env, list)
    return {one["name"]: one["value"] for one in env if "value" in one}


def test_every_container_that_fetches_uses_the_proxies() -> None:
    wanted = {"HTTPS_PROXY": PROXY, "https_proxy": PROXY, "NO_PROXY": ".svc", "no_proxy": ".svc"}

    without = {
        name
        for spec in pods_of(PROXIED).values()
        for name, container in containers_of(spec).items()
        if not wanted.items() <= variables_of(container).items()
    }

    assert without == INSIDE


def test_every_container_that_fetches_trusts_the_authorities() -> None:
    for pod, spec in pods_of(TRUSTING).items():
        key = {"key": "bundle.pem", "path": "ca.crt"}
        volume = {"name": CA_VOLUME, "configMap": {"name": "authorities", "items": [key]}}
        assert volume in spec["volumes"], pod
        for name, container in containers_of(spec).items():
            mounted = CA_FOLDER in {mount["mountPath"] for mount in container["volumeMounts"]}
            told = variables_of(container).get("SSL_CERT_FILE") == f"{CA_FOLDER}/ca.crt"
            assert mounted == told == (name not in INSIDE), (pod, name)


def test_without_a_decision_pods_are_as_ever() -> None:
    text = str(pods_of(PLAIN))

    assert "proxy" not in text.lower()
    assert CA_VOLUME not in text
    assert "SSL_CERT_FILE" not in text


def test_a_proxy_for_one_scheme_says_nothing_of_the_other() -> None:
    names = variables_of(containers_of(pods_of(PROXIED)["prepare"])["main"])

    assert not {"HTTP_PROXY", "http_proxy", "SSL_CERT_FILE"} & set(names)


def test_variables_of_the_operator_are_handed_on() -> None:
    environment = {"HTTP_PROXY": PROXY, "NO_PROXY": "10.96.0.1", "WHETSTONE_CA_CONFIG_MAP": "authorities"}

    assert Egress.from_environment(environment) == Egress(
        http_proxy=PROXY, no_proxy="10.96.0.1", ca_config_map="authorities", ca_key="ca.crt"
    )
