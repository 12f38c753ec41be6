"""The operator's settings, read once from the environment."""

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Final, Self

from whetstone_api.digests import canonical_digest

from whetstone_operator.egress import Egress
from whetstone_operator.prices import Prices, PricesError, read_prices

STOCK_ENGINE_IMAGE = "docker.io/vllm/vllm-openai:v0.32.0"

ANSWER_SECONDS = 180.0
"""Longer than a watch can be dead without its reader's knowing."""

_IN_ENGINES: Final = (
    "server_image",
    "engine_image",
    "image_pull_policy",
    "image_pull_secrets",
    "egress",
    "operator_url",
)
"""Settings that go into engine pods."""

PUBLIC_HUB = "https://huggingface.co"


class SettingsError(ValueError):
    """A variable of the environment is missing or wrong; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an administrator decides.

    Args:
        namespaces: Namespaces to serve; empty for the whole cluster.
        server_image: Image of guard and sidecar.
        engine_image: vLLM image of servers that name none.
        trainer_image: Image of training Jobs that name none.
        unsloth_image: Image of training Jobs whose backend is Unsloth and that name none; empty where there is none.
        benchmark_image: Image of benchmark Jobs that name none.
        operator_url: Base URL under which pods reach the operator's HTTP server.
        hub_endpoint: Hub whose branches and tags the operator resolves; pods may use others.
        http_port: Port of that server.
        workers: Reconciles at a time.
        resync_seconds: Pause after which a live object is looked at again without any event.
        image_pull_policy: Pull policy of all containers of ours; the cluster's default when absent.
        image_pull_secrets: Names of pull secrets for the pods that the operator creates.
        prices: What an hour of a device costs.
        egress: Proxies, and whose certificates are trusted.
        own_namespace: Where the operator and its Lease are.
        lease: Name of the Lease whose holder is at work.
        identity: What names this operator in the Lease.
        engine_upgrades: Servers whose engines an upgrade restarts at a time; 0 for none.
        answer_seconds: How long another installation that works on a namespace may take to say so.
        own_url: Base URL at which other operators reach this one; empty outside a pod.
    """

    namespaces: tuple[str, ...] = ()
    server_image: str
    engine_image: str = STOCK_ENGINE_IMAGE
    trainer_image: str
    benchmark_image: str
    unsloth_image: str = ""
    operator_url: str
    hub_endpoint: str = PUBLIC_HUB
    http_port: int = 8080
    workers: int = 16
    resync_seconds: float = 300
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[str, ...] = field(default=())
    prices: Prices = field(default_factory=Prices)
    egress: Egress = field(default_factory=Egress)
    own_namespace: str = "whetstone-system"
    lease: str = "whetstone-operator"
    identity: str = ""
    engine_upgrades: int = 1
    answer_seconds: float = ANSWER_SECONDS
    own_url: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings.

        Raises:
            SettingsError: A variable is missing or is not what it must be.
        """
        own_namespace = environment.get("POD_NAMESPACE", "whetstone-system")
        port = _number(environment, "WHETSTONE_HTTP_PORT", "8080")
        return cls(
            namespaces=_names(environment.get("WHETSTONE_NAMESPACES", "")),
            server_image=_required(environment, "WHETSTONE_SERVER_IMAGE"),
            engine_image=environment.get("WHETSTONE_ENGINE_IMAGE") or STOCK_ENGINE_IMAGE,
            trainer_image=_required(environment, "WHETSTONE_TRAINER_IMAGE"),
            unsloth_image=environment.get("WHETSTONE_UNSLOTH_IMAGE", ""),
            benchmark_image=_required(environment, "WHETSTONE_BENCHMARK_IMAGE"),
            operator_url=environment.get("WHETSTONE_OPERATOR_URL")
            or f"http://whetstone-operator.{own_namespace}.svc:{port}",
            hub_endpoint=environment.get("WHETSTONE_HUB_ENDPOINT") or PUBLIC_HUB,
            http_port=port,
            workers=_number(environment, "WHETSTONE_WORKERS", "16"),
            resync_seconds=_number(environment, "WHETSTONE_RESYNC_SECONDS", "300"),
            image_pull_policy=environment.get("WHETSTONE_IMAGE_PULL_POLICY") or None,
            image_pull_secrets=_names(environment.get("WHETSTONE_IMAGE_PULL_SECRETS", "")),
            prices=_prices(environment.get("WHETSTONE_PRICES", "")),
            egress=Egress.from_environment(environment),
            own_namespace=own_namespace,
            lease=environment.get("WHETSTONE_LEASE") or "whetstone-operator",
            # A container that is started again in its pod is the same candidate: its predecessor is dead.
            identity=environment.get("POD_UID") or f"{socket.gethostname()}-{uuid.uuid4()}",
            engine_upgrades=_number(environment, "WHETSTONE_ENGINE_UPGRADES", "1", least=0),
            answer_seconds=_number(environment, "WHETSTONE_ANSWER_SECONDS", f"{ANSWER_SECONDS:.0f}"),
            own_url=_url(environment.get("POD_IP", ""), port),
        )

    @cached_property
    def engine_digest(self) -> str:
        """Digest of what goes into engine pods."""
        parts = asdict(self)
        return canonical_digest({name: parts[name] for name in _IN_ENGINES})

    @property
    def installation(self) -> str:
        """What the operators of one installation have in common: their Lease."""
        return f"{self.own_namespace}/{self.lease}"

    def report_url(self, *, plural: str, namespace: str, name: str) -> str:
        """Return the URL to which the pods of an object report."""
        return f"{self.operator_url}/v1/reports/{plural}/{namespace}/{name}"

    def engine_check_url(self, *, plural: str, namespace: str, name: str) -> str:
        """Return the URL that tells a run whether the engines are still those that it began with."""
        return f"{self.operator_url}/v1/engine-checks/{plural}/{namespace}/{name}"

    def turn_url(self, *, plural: str, namespace: str, name: str) -> str:
        """Return the URL that tells a run whether it is its turn to measure its server."""
        return f"{self.operator_url}/v1/turns/{plural}/{namespace}/{name}"

    def trainer_status_url(self, *, plural: str, namespace: str, name: str) -> str:
        """Return the URL for programs that report by Kubeflow's trainer-status protocol."""
        return f"{self.operator_url}/v1/trainer-status/{plural}/{namespace}/{name}"


def _url(address: str, port: int) -> str:
    if not address:
        return ""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set; give the image that the chart's values name")
    return value


def _number(environment: Mapping[str, str], name: str, default: str, *, least: int = 1) -> int:
    value = environment.get(name) or default
    if not value.isdigit() or int(value) < least:
        raise SettingsError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def _prices(text: str) -> Prices:
    try:
        return read_prices(text)
    except PricesError as error:
        raise SettingsError(f"WHETSTONE_PRICES: {error}; correct the chart's value prices") from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
