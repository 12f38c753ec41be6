"""Memory that the objects of a manifest will take on an accelerator, part by part."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whetstone_api.capacity import AUTO, DEFAULT_RANK, DEFAULT_SLOTS, AdapterCapacity
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.model_facts import ModelFacts
from whetstone_api.modelserver import ModelServer
from whetstone_api.training_settings import InitMode, Method
from whetstone_artifacts.model_facts import facts_of_config, read_model_facts
from whetstone_artifacts.serving_memory import estimate, quantity
from whetstone_artifacts.training_choice import (
    Choice,
    choices,
    fastest,
    freedom_of,
    memory_bytes,
    most_sparing,
    shape_of,
)
from whetstone_artifacts.training_memory import TrainingShape, frozen_adapter, training_weights


class EstimateError(Exception):
    """There is no estimate; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """The estimate of one object.

    Args:
        name: Kind and name.
        what: What was estimated, in words.
        parts: Bytes by part.
    """

    name: str
    what: str
    parts: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Sum of the parts, bytes."""
        return sum(self.parts.values())


def model_facts(path: Path) -> ModelFacts:
    """Return the facts of a model from its folder, or from a `config.json` alone.

    Args:
        path: A model's folder, or a `config.json`.

    Raises:
        EstimateError: It cannot be read, or is no gated decoder.
    """
    try:
        facts = read_model_facts(path) if path.is_dir() else facts_of_config(json.loads(path.read_bytes()))
        if facts is None and path.is_dir():
            facts = facts_of_config(json.loads((path / "config.json").read_bytes()))
    except (OSError, ValueError) as error:
        raise EstimateError(f"{path} is not read as a model's configuration: {error}") from error
    if facts is None:
        raise EstimateError(
            f"{path}: there is no estimate for this architecture: it is no decoder with gated dense layers, or its"
            " config.json says too little"
        )
    return facts


def estimate_object(
    document: Mapping[str, Any], facts: ModelFacts, *, longest: int | None, free: int | None
) -> list[Estimated]:
    """Return the estimates of an object, for one accelerator.

    Args:
        document: A valid object, as it would be applied.
        facts: Its base model.
        longest: Tokens of the longest row, or request; what the spec or the model allows when absent.
        free: Bytes of the accelerator; where known, the estimate of a training is of what fits best.

    Raises:
        EstimateError: Nothing fits.
    """
    completed = {**document, "metadata": {"namespace": "default", **document["metadata"]}}
    if document["kind"] == LoRATrainingJob.kind_name:
        return _training(LoRATrainingJob.model_validate(completed), facts, longest=longest, free=free)
    if document["kind"] == ModelServer.kind_name:
        return _serving(ModelServer.model_validate(completed), facts, longest=longest)
    return []


def _training(job: LoRATrainingJob, facts: ModelFacts, *, longest: int | None, free: int | None) -> list[Estimated]:
    asked = job.spec.hyperparameters
    length = longest or asked.max_length or facts.max_length
    plan = job.spec.plan
    shape = shape_of(
        method=job.spec.method, lora=job.spec.lora, plan=plan, quantization=job.spec.quantization, longest=length
    )
    shape = replace(shape, reference=_reference(job, facts, shape))
    freedom = freedom_of(plan, batch_size=asked.batch_size, typical_length=length)
    if free is None and plan.device_memory:
        free = memory_bytes(plan.device_memory)
    found = choices(facts, shape, freedom)
    name = f"LoRATrainingJob/{job.metadata.name}"
    if free is None:
        shown = {"fastest": found[0], "most sparing": most_sparing(found)}
        return [_of_choice(name, words, choice, length) for words, choice in shown.items()]
    best = fastest(found, free=free)
    if best is None:
        least = most_sparing(found)
        needed = quantity(least.memory.total if least.memory else 0)
        raise EstimateError(
            f"{name}: rows of {length} tokens take {needed} with micro-batch {least.micro_batch} and checkpointing,"
            f" more than fits into {quantity(free)}; shorten the rows, lower the rank, or take a larger accelerator"
        )
    return [_of_choice(name, f"fastest in {quantity(free)}", best, length)]


def _reference(job: LoRATrainingJob, facts: ModelFacts, shape: TrainingShape) -> int:
    """Return the bytes of DPO's reference; what it is compared with is not here, so it is taken to be like the job's.

    Args:
        job: The training.
        facts: Its base model, and that of a reference.
        shape: Its shape, and that of a reference's adapter.
    """
    spec = job.spec
    if spec.method is not Method.DPO:
        return 0
    asked = spec.preference.reference if spec.preference else None
    folds = spec.init_adapter is not None and spec.init_adapter.mode is InitMode.MERGE_THEN_NEW
    if asked is not None and (asked.model is not None or folds):
        return training_weights(facts, replace(shape, quantization=None))
    frozen = asked is not None or (spec.init_adapter is not None and not folds)
    return frozen_adapter(facts, shape) if frozen else 0


def _of_choice(name: str, words: str, choice: Choice, length: int) -> Estimated:
    how = "with" if choice.checkpointing else "without"
    return Estimated(
        name=name,
        what=f"{words}: micro-batch {choice.micro_batch}, rows of {length} tokens, {how} checkpointing",
        parts=choice.memory.parts() if choice.memory else {},
    )


def _serving(server: ModelServer, facts: ModelFacts, *, longest: int | None) -> list[Estimated]:
    loras, rank = _slots(server.spec.adapter_capacity)
    engine = server.spec.engine
    if longest is not None:
        engine = engine.model_copy(update={"max_model_length": longest})
    found = estimate(facts, engine, loras=loras, rank=rank)
    parts = {"weights": found.weights, "adapters": found.adapters, "one request": found.cache_per_request}
    return [
        Estimated(
            name=f"ModelServer/{server.metadata.name}",
            what=f"{loras} adapters of rank {rank}, a request of {found.length} tokens, on each accelerator",
            parts={**parts, "work space": found.work},
        )
    ]


def _slots(capacity: AdapterCapacity) -> tuple[int, int]:
    """Return slots and rank; of Auto what its headroom keeps, since the adapters are not known here."""
    headroom = capacity.headroom
    loras = capacity.max_loras if capacity.max_loras != AUTO else headroom.loras if headroom else DEFAULT_SLOTS
    rank = capacity.max_rank if capacity.max_rank != AUTO else headroom.rank if headroom else DEFAULT_RANK
    return int(loras), int(rank)


def as_text(found: Sequence[Estimated]) -> str:
    """Return estimates for people: a table for each."""
    lines: list[str] = []
    for one in found:
        lines += [f"{one.name}, {one.what}:"]
        lines += [f"  {part:<12} {quantity(size):>10}" for part, size in {**one.parts, "together": one.total}.items()]
    return "\n".join(lines)


def as_json(found: Sequence[Estimated]) -> str:
    """Return estimates for machines, in bytes."""
    rows = [{"object": one.name, "what": one.what, "bytes": dict(one.parts), "total": one.total} for one in found]
    return json.dumps(rows, indent=2)
