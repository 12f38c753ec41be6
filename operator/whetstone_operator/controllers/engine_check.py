"""Whether the engines stayed what they were while a run was measured, and what follows from it for the run.

The runner asks after its last trial, and publishes the answer with the results: whoever adopts them learns it too.
"""

from typing import Final

from whetstone_api.benchmark_target import EngineCheck, EngineIdentity
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.engine_identity import identity_change
from whetstone_operator.controllers.gates import Judgement
from whetstone_operator.kinds import BENCHMARK_RUN, DEPLOYMENT, Key
from whetstone_operator.kube import Kube
from whetstone_operator.resources.modelserver import engine_deployment_name
from whetstone_operator.runtime.clock import Clock, to_rfc3339

_AGAIN: Final = "measure it again under another spec.output.uri: these results stay as they are"


async def check_engines(kube: Kube, clock: Clock, key: Key, before: EngineIdentity) -> EngineCheck:
    """Compare the engines that a run began with with what they are now.

    Args:
        kube: Reads the run and its server's Deployment.
        clock: Dates the answer.
        key: The run.
        before: The engines at its start.
    """
    found = await kube.get(BENCHMARK_RUN, key.namespace, key.name)
    server = None if found is None else BenchmarkRun.model_validate({**found, "status": {}}).spec.target
    deployment = None
    if server is not None:
        name = engine_deployment_name(server.model_server_ref.name)
        deployment = await kube.get(DEPLOYMENT, key.namespace, name)
    change = None if deployment is None else identity_change(before, deployment, ended_at=None)
    return EngineCheck(checked_at=to_rfc3339(clock.now()), change=change)


def judge_engines(change: str | None, *, unknown: bool) -> Judgement | None:
    """Return what the engines' identity makes of a run, of Valid and GatePassed alike; None where it is in order.

    Args:
        change: What became others.
        unknown: Nobody can tell.
    """
    if change is not None:
        return Judgement(status="False", reason=Reason.TARGET_CHANGED, message=f"{change}; {_AGAIN}")
    if not unknown:
        return None
    told = "the adopted results do not say whether the engines stayed the same while they were measured"
    return Judgement(status="Unknown", reason=Reason.ENGINES_UNCHECKED, message=f"{told}; {_AGAIN}")
