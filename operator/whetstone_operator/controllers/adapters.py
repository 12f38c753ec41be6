"""Adapters of a server: which version each name stands for, and what the pods say of it. Pure but for the inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from whetstone_api.digests import versioned_name
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import AdapterFailure, AdapterSpec, AdapterStatus, ModelServer
from whetstone_api.pod_state import AdapterState, DesiredAdapter, Effect, PodState
from whetstone_api.source import PinnedSource, Scheme, Source, scheme_of
from whetstone_api.vocabulary import ConditionType, Reason

from whetstone_operator.controllers.source_pins import Pin
from whetstone_operator.runtime.clock import to_micro_time

FAILURES_SHOWN = 10
_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, kw_only=True)
class ResolvedAdapter:
    """An adapter of the spec with the version that it stands for.

    Args:
        name: Its name in the spec.
        required: Whether new pods wait for it.
        source: URI of the version's folder; None while there is no version.
        secret: Secret that the place asks for.
        digest: Content digest of the version.
        published_at: When its training job published it, RFC 3339.
        reason: Why there is no version to load; None when there is one.
        message: The same for people.
    """

    name: str
    required: bool
    source: str | None = None
    secret: str | None = None
    digest: str | None = None
    published_at: str | None = None
    reason: Reason | None = None
    message: str = ""

    @property
    def served_name(self) -> str | None:
        """Immutable name of the version."""
        return versioned_name(self.name, self.digest) if self.digest else None

    def to_desired(self, *, required: bool) -> DesiredAdapter | None:
        """Return what a pod should hold; None while there is no version that it may load."""
        if self.reason is not None or self.source is None or self.digest is None:
            return None
        mounted = scheme_of(self.source) is Scheme.PVC
        return DesiredAdapter(
            name=self.name,
            served_name=versioned_name(self.name, self.digest),
            digest=self.digest,
            source=self.source,
            path=Source(uri=self.source).mount_path if mounted else "",
            field=None if mounted else f"spec.adapters[{self.name}].source",
            secret=self.secret,
            required=required,
        )


@dataclass(frozen=True, kw_only=True)
class PodView:
    """An engine pod as this reconcile sees it.

    Args:
        name: Name of the pod.
        ready: Whether Kubernetes says that it is Ready.
        state: What its sidecar answered; None when it did not.
    """

    name: str
    ready: bool
    state: PodState | None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A condition that follows from what the pods say."""

    condition: ConditionType
    status: str
    reason: Reason
    message: str


def resolve_adapter(
    spec: AdapterSpec,
    *,
    server: ModelServer,
    job: LoRATrainingJob | None,
    recorded: AdapterStatus | None,
    pin: Pin | None = None,
) -> ResolvedAdapter:
    """Return the version that an adapter stands for.

    Args:
        spec: The adapter in the server's spec.
        server: The server, for its stores.
        job: The training job that it refers to, if it exists.
        recorded: What the status recorded; a dangling reference keeps the last resolved version.
        pin: What its source stands for, of one outside the cluster.
    """
    if spec.source is not None and spec.source.scheme is not Scheme.PVC:
        return _elsewhere(spec, server, source=spec.source, pin=pin or Pin(uri=spec.source.uri))
    if spec.source is not None:
        return _in_store(spec, server, source=spec.source.uri, digest=spec.source.digest, published_at=None)
    name = spec.training_job_ref.name if spec.training_job_ref else ""
    published = job.status.adapter if job else None
    if published is not None:
        return _in_store(
            spec, server, source=published.uri, digest=published.digest, published_at=published.published_at
        )
    if job is None and recorded is not None and recorded.digest and recorded.source:
        return _in_store(spec, server, source=recorded.source, digest=recorded.digest, published_at=None)
    if job is None:
        reason, message = Reason.REFERENCE_NOT_FOUND, f"LoRATrainingJob {name} does not exist; create it"
    elif job.status.is_true(ConditionType.FAILED):
        reason, message = Reason.REFERENCE_FAILED, f"LoRATrainingJob {name} has failed; see its conditions"
    else:
        reason, message = Reason.NOT_PUBLISHED, f"LoRATrainingJob {name} has not published its adapter yet"
    where = f"spec.adapters[{spec.name}].trainingJobRef: {message}"
    return ResolvedAdapter(name=spec.name, required=spec.required, reason=reason, message=where)


def _elsewhere(spec: AdapterSpec, server: ModelServer, *, source: PinnedSource, pin: Pin) -> ResolvedAdapter:
    secret = source.secret_ref.name if source.secret_ref else None
    mounted = {store.secret_ref.name for store in server.spec.adapter_stores or [] if store.secret_ref}
    reason, message = pin.reason, pin.message
    if secret and secret not in mounted:
        reason = Reason.STORE_NOT_MOUNTED
        message = f"spec.adapters[{spec.name}].source.secretRef: add Secret {secret} to spec.adapterStores"
    return ResolvedAdapter(
        name=spec.name,
        required=spec.required,
        source=pin.uri,
        secret=secret,
        digest=source.digest,
        reason=reason,
        message=message,
    )


def _in_store(
    spec: AdapterSpec, server: ModelServer, *, source: str, digest: str | None, published_at: str | None
) -> ResolvedAdapter:
    claim = Source(uri=source).claim
    stores = [store.claim_name for store in server.spec.adapter_stores or []]
    missing = claim not in stores
    return ResolvedAdapter(
        name=spec.name,
        required=spec.required,
        source=source,
        digest=digest,
        published_at=published_at,
        reason=Reason.STORE_NOT_MOUNTED if missing else None,
        message=f"adapter {spec.name} lies in claim {claim}; add it to spec.adapterStores" if missing else "",
    )


def state_of(pod: PodView, adapter: ResolvedAdapter) -> AdapterState | None:
    """Return what a pod says of an adapter's current version."""
    for state in pod.state.adapters if pod.state else []:
        if state.served_name == adapter.served_name:
            return state
    return None


def effective_everywhere(adapter: ResolvedAdapter, pods: Sequence[PodView]) -> bool:
    """Return whether every ready pod says that the version is loaded and effective, and there is one."""
    ready = [pod for pod in pods if pod.ready]
    states = [state_of(pod, adapter) for pod in ready]
    return bool(states) and all(state is not None and state.loaded and state.effect.effective for state in states)


def adapter_status(
    adapter: ResolvedAdapter, *, pods: Sequence[PodView], recorded: AdapterStatus | None, now: datetime
) -> AdapterStatus:
    """Return the status entry of an adapter.

    Args:
        adapter: The adapter with its version.
        pods: The server's pods.
        recorded: The entry as stored.
        now: Time of this reconcile.
    """
    states = [state for pod in pods if pod.ready and (state := state_of(pod, adapter)) is not None]
    effective = effective_everywhere(adapter, pods)
    same = recorded is not None and recorded.digest == adapter.digest
    since = recorded.effective_since if recorded and same else None
    bad = next((state for state in _all_states(adapter, pods) if state.reason), None)
    reason, message = adapter.reason, adapter.message
    if reason is None and bad is not None and not effective:
        reason, message = Reason(bad.reason) if bad.reason in Reason else Reason.LOAD_FAILED, bad.message
    elif reason is None and not effective:
        reason, message = Reason.LOADING, "being fetched, loaded or probed"
    return AdapterStatus(
        name=adapter.name,
        served_name=adapter.served_name,
        digest=adapter.digest,
        source=adapter.source,
        loaded_replicas=sum(state.loaded for state in states),
        effective_replicas=sum(state.loaded and state.effect.effective for state in states),
        effective_since=since or (to_micro_time(now) if effective else None),
        reason=str(reason) if reason else None,
        message=message[:_MESSAGE_LIMIT] if reason else None,
    )


def adapter_failures(adapters: Sequence[ResolvedAdapter], pods: Sequence[PodView]) -> list[AdapterFailure]:
    """Return the first failures, by pod; ready or not."""
    found = [
        AdapterFailure(pod=pod.name, adapter=adapter.name, reason=state.reason, message=state.message[:_MESSAGE_LIMIT])
        for pod in sorted(pods, key=lambda pod: pod.name)
        for adapter in adapters
        if (state := state_of(pod, adapter)) is not None and state.reason
    ]
    return found[:FAILURES_SHOWN]


def summarize(adapters: Sequence[ResolvedAdapter], pods: Sequence[PodView]) -> list[Summary]:
    """Return the conditions AdaptersLoaded, AdapterEffective, BaseParity and TemplateParity."""
    return [
        _loaded(adapters, pods),
        _effective(adapters, pods),
        _base_parity(pods),
        _template_parity(adapters, pods),
    ]


def _without_pods(condition: ConditionType, adapters: Sequence[ResolvedAdapter]) -> Summary | None:
    """Return the condition where no pod needs to be asked: no adapters, or one that no pod could hold yet."""
    if not adapters:
        return Summary(condition=condition, status="True", reason=Reason.NO_ADAPTERS, message="spec.adapters is empty")
    held_back = next((adapter for adapter in adapters if adapter.reason is not None), None)
    if held_back is not None and held_back.reason is not None:
        return Summary(condition=condition, status="False", reason=held_back.reason, message=held_back.message)
    return None


def _loaded(adapters: Sequence[ResolvedAdapter], pods: Sequence[PodView]) -> Summary:
    condition = ConditionType.ADAPTERS_LOADED
    if (early := _without_pods(condition, adapters)) is not None:
        return early
    ready = [pod for pod in pods if pod.ready]
    missing = [
        (adapter, pod)
        for adapter in adapters
        for pod in ready
        if not ((state := state_of(pod, adapter)) is not None and state.loaded)
    ]
    if ready and not missing:
        return Summary(
            condition=condition,
            status="True",
            reason=Reason.ALL_LOADED,
            message=f"{_count(len(adapters), 'adapter')} loaded on {_count(len(ready), 'replica')}",
        )
    return _not_there(condition, adapters, pods, missing[0] if missing else None)


def _effective(adapters: Sequence[ResolvedAdapter], pods: Sequence[PodView]) -> Summary:
    condition = ConditionType.ADAPTER_EFFECTIVE
    if (early := _without_pods(condition, adapters)) is not None:
        return early
    states = [(adapter, pod, state_of(pod, adapter)) for adapter in adapters for pod in pods if pod.ready]
    pending = next(
        ((adapter, pod) for adapter, pod, state in states if not (state and state.loaded and state.effect.effective)),
        None,
    )
    if not states or pending is not None:
        return _not_there(condition, adapters, pods, pending)
    for effect, reason in ((Effect.UNKNOWN, Reason.NOT_RECORDED), (Effect.CHANGED, Reason.CHANGED)):
        unsure = next(((one, pod, state) for one, pod, state in states if state and state.effect is effect), None)
        if unsure is not None:
            adapter, pod, state = unsure
            message = f"adapter {adapter.name} on pod {pod.name}: {state.message}"
            return Summary(condition=condition, status="Unknown", reason=reason, message=message)
    return Summary(condition=condition, status="True", reason=Reason.VERIFIED, message="as recorded in training")


def _not_there(
    condition: ConditionType,
    adapters: Sequence[ResolvedAdapter],
    pods: Sequence[PodView],
    missing: tuple[ResolvedAdapter, PodView] | None,
) -> Summary:
    """Return a False condition that names the worst that any pod says, else that loading is under way."""
    failures = adapter_failures(adapters, pods)
    if failures:
        first = failures[0]
        reason = Reason(first.reason) if first.reason in Reason else Reason.LOAD_FAILED
        message = f"adapter {first.adapter} on pod {first.pod}: {first.message}"
        return Summary(condition=condition, status="False", reason=reason, message=message)
    message = "no replica is ready yet"
    if missing is not None:
        adapter, pod = missing
        answer = "is being fetched, loaded or probed" if pod.state else "is unknown: its sidecar does not answer"
        message = f"adapter {adapter.name} on pod {pod.name} {answer}"
    return Summary(condition=condition, status="False", reason=Reason.LOADING, message=message)


def _base_parity(pods: Sequence[PodView]) -> Summary:
    condition = ConditionType.BASE_PARITY
    found = [(pod.name, pod.state.base) for pod in sorted(pods, key=lambda pod: pod.name) if pod.state is not None]
    states = [base for _, base in found]
    wrong = next(((name, base) for name, base in found if base.status == "False"), None)
    if wrong is not None:
        message = f"pod {wrong[0]}: {wrong[1].message}"
        return Summary(condition=condition, status="False", reason=Reason.DIVERGENT, message=message)
    if states and all(state.status == "True" for state in states):
        return Summary(
            condition=condition, status="True", reason=Reason.VERIFIED, message="the base computes as in training"
        )
    message = next((state.message for state in states if state.message), "no probe of this base model is at hand")
    return Summary(condition=condition, status="Unknown", reason=Reason.NOT_RECORDED, message=message)


def _template_parity(adapters: Sequence[ResolvedAdapter], pods: Sequence[PodView]) -> Summary:
    condition = ConditionType.TEMPLATE_PARITY
    found = [
        (adapter.name, pod.name, state.template)
        for pod in sorted(pods, key=lambda pod: pod.name)
        for adapter in adapters
        if (state := state_of(pod, adapter)) is not None and state.loaded
    ]
    for adapter, pod, template in found:
        if template.status == "False":
            message = f"adapter {adapter} on pod {pod}: {template.message}; serve the template that it was trained with"
            return Summary(condition=condition, status="False", reason=Reason.TEMPLATE_MISMATCH, message=message)
    if found and all(template.status == "True" for *_, template in found):
        message = "conversations are rendered as in training"
        return Summary(condition=condition, status="True", reason=Reason.VERIFIED, message=message)
    unsure = next((f"adapter {name} on pod {pod}: {one.message}" for name, pod, one in found if one.message), "")
    message = unsure or "no adapter is loaded"
    return Summary(condition=condition, status="Unknown", reason=Reason.NOT_RECORDED, message=message)


def _all_states(adapter: ResolvedAdapter, pods: Sequence[PodView]) -> list[AdapterState]:
    ordered = sorted(pods, key=lambda pod: (not pod.ready, pod.name))
    return [state for pod in ordered if (state := state_of(pod, adapter)) is not None]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def by_name(statuses: Sequence[AdapterStatus] | None) -> Mapping[str, AdapterStatus]:
    """Return status entries by the adapter's name."""
    return {status.name: status for status in statuses or []}
