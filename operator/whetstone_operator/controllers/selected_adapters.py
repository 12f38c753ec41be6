"""Adapters that a label selector adds to those that a server names. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import MAX_ADAPTERS, AdapterSpec, ModelServer
from whetstone_api.schema import LocalRef
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.adapters import ResolvedAdapter

FIELD = "spec.adapterSelector"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a selector adds.

    Args:
        adapters: Adapters to serve, as a user would name them.
        refused: Published adapters that cannot be served, each with the reason.
    """

    adapters: list[AdapterSpec]
    refused: list[ResolvedAdapter]


def select_adapters(server: ModelServer, jobs: Sequence[LoRATrainingJob]) -> Selection:
    """Return what the selector of a server adds: every job with a published adapter, under the job's name.

    A job that has published nothing is left out without a word. One that the server names itself is not selected
    again. Where there are more than a server holds, those that were published first stay.

    Args:
        server: The server.
        jobs: LoRATrainingJobs that carry the selector's labels.
    """
    named = server.spec.adapters or []
    taken = _taken_names(server)
    own = {spec.name for spec in named if spec.training_job_ref and spec.training_job_ref.name == spec.name}
    adapters: list[AdapterSpec] = []
    refused: list[ResolvedAdapter] = []
    published = [(job.status.adapter.published_at or "", job.metadata.name) for job in jobs if job.status.adapter]
    for _, name in sorted(published):
        if name in own:
            continue
        if name in taken:
            told = f"{FIELD}: LoRATrainingJob {name} has the name of {taken[name]}; rename that, or take the label away"
            refused.append(_refuse(name, Reason.NAME_CONFLICT, told))
        elif len(named) + len(adapters) >= MAX_ADAPTERS:
            told = f"{FIELD}: LoRATrainingJob {name} is left out, a server holds {MAX_ADAPTERS} adapters; select fewer"
            refused.append(_refuse(name, Reason.TOO_MANY_ADAPTERS, told))
        else:
            adapters.append(AdapterSpec(name=name, training_job_ref=LocalRef(name=name)))
    return Selection(adapters=adapters, refused=refused)


def _taken_names(server: ModelServer) -> dict[str, str]:
    """Return what has each name of the server, for people."""
    spec = server.spec
    return {
        **{alias.name: f"spec.aliases[{alias.name}]" for alias in spec.aliases or []},
        **{adapter.name: f"spec.adapters[{adapter.name}]" for adapter in spec.adapters or []},
        spec.model.served_name: "spec.model.servedName",
    }


def _refuse(name: str, reason: Reason, message: str) -> ResolvedAdapter:
    return ResolvedAdapter(name=name, required=False, reason=reason, message=message)
