"""How what runs in the cluster reaches what is outside: proxies, and whose certificates it trusts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

CA_KEY = "ca.crt"


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What the administrator decided; the operator hands it on to the pods that fetch something.

    Args:
        http_proxy: Proxy for addresses with http://; empty for none.
        https_proxy: Proxy for addresses with https://; empty for none.
        no_proxy: Hosts, domains and networks that are reached without a proxy, with commas.
        ca_config_map: ConfigMap of each served namespace with the authorities to trust instead of those of the
            images; empty where those of the images are trusted.
        ca_key: Its key.
    """

    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    ca_config_map: str = ""
    ca_key: str = CA_KEY

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return what the operator's own variables say: the proxies that it uses itself are those of its pods.

        Args:
            environment: Variables of the process.
        """
        return cls(
            http_proxy=environment.get("HTTP_PROXY", ""),
            https_proxy=environment.get("HTTPS_PROXY", ""),
            no_proxy=environment.get("NO_PROXY", ""),
            ca_config_map=environment.get("WHETSTONE_CA_CONFIG_MAP", ""),
            ca_key=environment.get("WHETSTONE_CA_KEY") or CA_KEY,
        )
