"""What a container needs to reach what is outside the cluster, as the administrator's `Egress` says. Pure."""

from typing import Any

from whetstone_operator.egress import Egress

CA_VOLUME = "ca-bundle"
CA_FOLDER = "/etc/whetstone/ca"
_CA_FILE = "ca.crt"
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
"""Names by which OpenSSL and httpx, requests, curl and git, and the S3 libraries find the authorities to trust."""


def egress_variables(egress: Egress) -> list[dict[str, str]]:
    """Return the variables of proxies and trust; none where nothing is decided.

    Programs read the names of proxies in one case or the other: curl takes `http_proxy` in lower case only.
    """
    proxies = {"HTTP_PROXY": egress.http_proxy, "HTTPS_PROXY": egress.https_proxy}
    if any(proxies.values()):
        proxies["NO_PROXY"] = egress.no_proxy
    values = {name: value for name, value in proxies.items() if value}
    values |= {name.lower(): value for name, value in values.items()}
    if egress.ca_config_map:
        values |= dict.fromkeys(_CA_VARIABLES, f"{CA_FOLDER}/{_CA_FILE}")
    return [{"name": name, "value": value} for name, value in values.items()]


def ca_mounts(egress: Egress) -> list[dict[str, Any]]:
    """Return the mount of `ca_volumes` for a container with `egress_variables`."""
    return [{"name": CA_VOLUME, "mountPath": CA_FOLDER, "readOnly": True}] if egress.ca_config_map else []


def ca_volumes(egress: Egress) -> list[dict[str, Any]]:
    """Return the volume with the authorities; none where those of the images are trusted."""
    if not egress.ca_config_map:
        return []
    item = {"key": egress.ca_key, "path": _CA_FILE}
    return [{"name": CA_VOLUME, "configMap": {"name": egress.ca_config_map, "items": [item]}}]
