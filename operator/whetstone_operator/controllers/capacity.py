"""`Auto` in a server's adapterCapacity: what its adapters need now, against what its engines have reserved.

The engines' own arguments, in the Deployment, are the memory of what runs. Engines never restart for less. Whatever
else restarts them anyway is used to reserve what is needed now and no more.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whetstone_api.capacity import RANKS, AdapterCapacity, CapacityStatus, MemoryStatus
from whetstone_api.digests import canonical_digest
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import AdapterSpec, AdapterStatus, ModelServer
from whetstone_api.pod_state import DesiredAdapter
from whetstone_api.vocabulary import Annotation, ConditionType, Reason
from whetstone_artifacts.serving_memory import estimate, quantity

from whetstone_operator.controllers.adapters import PodView, ResolvedAdapter
from whetstone_operator.resources.capacity import Demand, Slots, read_slots, reserve
from whetstone_operator.resources.modelserver import build_template
from whetstone_operator.runtime.events import NORMAL
from whetstone_operator.runtime.reconcile import Work
from whetstone_operator.settings import Settings


def known_ranks(pods: Sequence[PodView], recorded: Iterable[AdapterStatus]) -> dict[str, int]:
    """Return the rank of each version that a pod has seen, by digest.

    Args:
        pods: The server's pods.
        recorded: The adapters as the status has them, for the time without pods.
    """
    ranks = {entry.digest: entry.rank for entry in recorded if entry.digest and entry.rank}
    told = (state for pod in pods if pod.state for state in pod.state.adapters)
    return ranks | {state.digest: state.rank for state in told if state.rank}


def job_rank(job: LoRATrainingJob | None) -> int | None:
    """Return the rank of what a training job has published or will publish; None where it never will."""
    if job is None:
        return None
    if job.status.adapter is not None:
        return job.status.adapter.rank
    return None if job.status.is_true(ConditionType.FAILED) else job.spec.lora.rank


def list_demands(
    named: Sequence[AdapterSpec],
    jobs: Mapping[str, LoRATrainingJob],
    *,
    resolved: Sequence[ResolvedAdapter],
    held: Sequence[DesiredAdapter],
    ranks: Mapping[str, int],
) -> list[Demand]:
    """Return what a server's adapters ask for: those it serves, those it will, and old versions that aliases keep.

    Args:
        named: Adapters that the spec names.
        jobs: LoRATrainingJobs that these name or a selector selects, by name.
        resolved: The version of each adapter.
        held: What pods are told to hold.
        ranks: Ranks by digest.
    """
    by_name = {spec.name: spec.training_job_ref.name for spec in named if spec.training_job_ref}
    current = {adapter.digest for adapter in resolved if adapter.digest}
    demands = {}
    for adapter in resolved:
        seen = ranks.get(adapter.digest or "")
        job = jobs.get(by_name.get(adapter.name, adapter.name))
        demands[adapter.name] = Demand(name=adapter.name, rank=seen or job_rank(job))
    taken = set(by_name.values())
    for name, job in jobs.items():
        if name not in demands and name not in taken and job_rank(job) is not None:
            demands[name] = Demand(name=name, rank=job_rank(job))
    old = [one for one in held if one.digest not in current]
    return [*demands.values(), *(Demand(name=one.served_name, rank=ranks.get(one.digest)) for one in old)]


def highest_rank(capacity: AdapterCapacity) -> int:
    """Return the rank above which no engine of a server would load; with Auto each pod knows its own bound."""
    return capacity.max_rank if isinstance(capacity.max_rank, int) else RANKS[-1]


def with_slots(server: ModelServer, slots: Slots) -> ModelServer:
    """Return the server with its capacity in numbers."""
    fixed = AdapterCapacity(max_loras=slots.loras, max_rank=slots.rank, max_cpu_loras=slots.cpu_loras)
    return server.model_copy(update={"spec": server.spec.model_copy(update={"adapter_capacity": fixed})})


def engine_form(server: ModelServer, settings: Settings) -> str:
    """Return a digest of all that restarts the server's engines, but for what Auto follows."""
    plain = with_slots(server, reserve(server.spec.adapter_capacity))
    # Without the user's overlay, which may be refused.
    plain = plain.model_copy(update={"spec": plain.spec.model_copy(update={"pod_template": None})})
    form = {
        "capacity": server.spec.adapter_capacity.to_wire(),
        "overlay": server.spec.to_wire().get("podTemplate"),
        "template": build_template(plain, settings),
    }
    return canonical_digest(form)


def running_slots(deployment: Mapping[str, Any] | None, *, form: str) -> Slots | None:
    """Return what running engines have reserved; None where none runs, or all restart anyway.

    Args:
        deployment: The server's Deployment as stored.
        form: The server's `engine_form` now.
    """
    if deployment is None or not (deployment.get("status") or {}).get("replicas"):
        return None
    if (deployment["metadata"].get("annotations") or {}).get(Annotation.ENGINE_FORM) != form:
        return None
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return read_slots(next((one.get("args") or [] for one in containers if one["name"] == "engine"), []))


def size_engine(
    work: Work[ModelServer],
    server: ModelServer,
    *,
    demands: Sequence[Demand],
    deployment: Mapping[str, Any] | None,
    pods: Sequence[PodView],
) -> tuple[ModelServer, str | None]:
    """Return the server with its capacity in numbers, and the annotation of its Deployment.

    Args:
        work: Its reconcile; the status gets the numbers, and an Event tells of engines that restart for more.
        server: The server.
        demands: What its adapters ask for.
        deployment: Its Deployment as stored; not needed where nothing is automatic.
        pods: Its pods, which know the model.
    """
    capacity = server.spec.adapter_capacity
    form = engine_form(server, work.context.settings) if capacity.automatic else None
    running = running_slots(deployment, form=form) if form else None
    slots = reserve(capacity, demands, running=running)
    work.status["capacity"] = CapacityStatus(
        max_loras=slots.loras,
        max_rank=slots.rank,
        max_cpu_loras=slots.cpu_loras,
        message=slots.message[:1024] or None,
        memory=_memory(server, slots, pods=pods, recorded=work.status.get("capacity")),
    ).to_wire()
    if running is not None and (slots.loras, slots.rank) != (running.loras, running.rank):
        changes = f"maxRank {running.rank} -> {slots.rank}, maxLoras {running.loras} -> {slots.loras}"
        message = f"engines restart with more room for adapters: {changes} ({slots.message})"
        work.tell(kind=NORMAL, reason=Reason.CAPACITY_RAISED, message=message)
    return with_slots(server, slots), form


def _memory(
    server: ModelServer, slots: Slots, *, pods: Sequence[PodView], recorded: Mapping[str, Any] | None
) -> MemoryStatus | None:
    """Return the estimated memory; as recorded while no pod answers."""
    ordered = sorted(pods, key=lambda pod: pod.name)
    facts = next((pod.state.model for pod in ordered if pod.state and pod.state.model), None)
    if facts is None:
        before = (recorded or {}).get("memory") if not any(pod.state for pod in pods) else None
        return MemoryStatus.model_validate(before) if before else None
    found = estimate(facts, server.spec.engine, loras=slots.loras, rank=slots.rank)
    return MemoryStatus(
        weights=quantity(found.weights),
        adapters=quantity(found.adapters),
        cache_per_request=quantity(found.cache_per_request),
        work=quantity(found.work),
        least=quantity(found.least),
    )


def describe_memory(status: Mapping[str, Any]) -> str:
    """Return the estimate of a server's status in words; empty where there is none."""
    memory = (status.get("capacity") or {}).get("memory")
    if not memory:
        return ""
    return (
        f"estimated for each accelerator: weights {memory['weights']}, adapters {memory['adapters']}, one request of"
        f" full length {memory['cachePerRequest']}, work space {memory['work']}, together {memory['least']}"
    )
