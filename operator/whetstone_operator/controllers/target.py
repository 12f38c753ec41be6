"""Which version a BenchmarkRun measures. Pure: decided from the spec and the server as it is."""

from dataclasses import dataclass

from whetstone_api.benchmark_target import MeasuredTarget, TargetSpec
from whetstone_api.modelserver import AdapterStatus, ModelServer
from whetstone_api.source import Scheme, Source, scheme_of
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.runtime.outcome import Stalled, Waiting

SERVER_FIELD = "spec.target.modelServerRef.name"
ADAPTER_FIELD = "spec.target.adapter"
ALIAS_FIELD = "spec.target.alias"
BROKEN = frozenset({str(Reason.NO_EFFECT), str(Reason.DIVERGENT)})
"""Verdicts of the effect probe that time alone does not mend."""


@dataclass(frozen=True)
class Resolved:
    """The version to measure, and the folder of its adapter (None for the base)."""

    target: MeasuredTarget
    source: Source | None = None


def resolve_target(spec: TargetSpec, server: ModelServer) -> Resolved:
    """Return the version that a run started now measures.

    Raises:
        Waiting: The server is not ready, does not list the name (yet), or the adapter is not effective everywhere yet.
        Stalled: The adapter has no effect, or another one than recorded.
    """
    name = server.metadata.name
    ready = next((c for c in server.status.conditions or [] if c.type == ConditionType.READY), None)
    if ready is None or ready.status != "True":
        state = f"{ready.reason}: {ready.message}" if ready else "it has no status yet"
        raise Waiting(Reason.REFERENCE_NOT_READY, f"{SERVER_FIELD}: ModelServer {name} is not ready ({state})")
    if spec.alias is not None:
        return _alias(spec.alias, server)
    if spec.adapter is not None:
        return _adapter(spec.adapter, server)
    return _base(server)


def _base(server: ModelServer) -> Resolved:
    return Resolved(MeasuredTarget(served_name=server.spec.model.served_name))


def _alias(alias: str, server: ModelServer) -> Resolved:
    if all(item.name != alias for item in server.spec.aliases or []):
        known = ", ".join(item.name for item in server.spec.aliases or []) or "none"
        raise Waiting(
            Reason.REFERENCE_NOT_FOUND,
            f"{ALIAS_FIELD}: ModelServer {server.metadata.name} has no alias {alias} (its aliases: {known}); "
            "add it to the server's spec.aliases",
        )
    status = next((item for item in server.status.aliases or [] if item.name == alias), None)
    if status is None:
        raise Waiting(Reason.REFERENCE_NOT_READY, f"{ALIAS_FIELD}: alias {alias} does not answer yet")
    if status.targets:
        raise Waiting(
            Reason.REFERENCE_NOT_READY,
            f"{ALIAS_FIELD}: alias {alias} has {len(status.targets)} targets, and a run measures one version; name an "
            "adapter in spec.target.adapter of a new run, or give the alias one target",
        )
    if status.digest is None:
        return _base(server)
    return _adapter(status.adapter, server, field=ALIAS_FIELD, version=status.served_name)


def _adapter(adapter: str, server: ModelServer, *, field: str = ADAPTER_FIELD, version: str | None = None) -> Resolved:
    # Selected adapters are in the status only.
    named = [item.name for item in server.spec.adapters or []] + [item.name for item in server.status.adapters or []]
    names = dict.fromkeys(named)
    if adapter not in names:
        known = ", ".join(names) or "none"
        raise Waiting(
            Reason.REFERENCE_NOT_FOUND,
            f"{field}: ModelServer {server.metadata.name} has no adapter {adapter} (its adapters: {known}); "
            "add it to the server's spec.adapters",
        )
    status = next((item for item in server.status.adapters or [] if item.name == adapter), None)
    if status is None or status.served_name is None or status.digest is None:
        said = f": {status.message}" if status and status.message else ""
        raise Waiting(Reason.ADAPTER_NOT_EFFECTIVE, f"{field}: adapter {adapter} is not loaded yet{said}")
    if version is not None and status.served_name != version:
        raise Waiting(
            Reason.ADAPTER_NOT_EFFECTIVE,
            f"{field}: the alias answers with {version} while adapter {adapter} moves to {status.served_name}",
        )
    _require_effect(status, server, field=field)
    target = MeasuredTarget(served_name=status.served_name, adapter=adapter, digest=status.digest)
    # Of an adapter from outside the cluster, the runner has no folder to read a lineage in.
    in_claim = status.source is not None and scheme_of(status.source) is Scheme.PVC
    return Resolved(target, Source(uri=status.source) if status.source and in_claim else None)


def _require_effect(adapter: AdapterStatus, server: ModelServer, *, field: str) -> None:
    replicas = server.status.ready_replicas or 0
    if replicas > 0 and adapter.effective_replicas >= replicas:
        return
    said = f" ({adapter.reason}: {adapter.message})" if adapter.reason else ""
    message = (
        f"{field}: adapter {adapter.served_name} is effective on {adapter.effective_replicas} of {replicas} ready "
        f"replicas{said}; a run now would measure something else"
    )
    if adapter.reason in BROKEN:
        raise Stalled(Reason.ADAPTER_NOT_EFFECTIVE, f"{message}; publish another version of the adapter")
    raise Waiting(Reason.ADAPTER_NOT_EFFECTIVE, message)
