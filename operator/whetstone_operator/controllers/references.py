"""What objects refer to. Each is looked up; a missing one is waited for, with a message that says so."""

from typing import Any

from whetstone_api.access import SecretKeyRef
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.source import Scheme
from whetstone_api.vocabulary import ConditionType, Reason
from whetstone_artifacts.sources.credentials import missing_key

from whetstone_operator.kinds import (
    BENCHMARK_RUN,
    CLAIM,
    CONFIG_MAP,
    MODEL_SERVER,
    SECRET,
    SERVICE_ACCOUNT,
    TRAINING_JOB,
)
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

LOOK_AGAIN_SECONDS = 5.0
"""Pause before a claim, a ConfigMap or an account is looked for again: the operator does not watch those of users."""
LONGEST_CHAIN = 32


async def require_server[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], name: str, *, field: str) -> ModelServer:
    """Return a ModelServer of the object's namespace.

    Args:
        work: The object that refers to it; woken when the server changes.
        name: Name of the server.
        field: Where the user named it.

    Raises:
        Waiting: It does not exist.
    """
    work.depends_on(MODEL_SERVER.plural, name)
    found = await work.context.kube.get(MODEL_SERVER, work.namespace, name)
    if found is None:
        raise Waiting(
            Reason.REFERENCE_NOT_FOUND,
            f"{field}: ModelServer {name} does not exist in namespace {work.namespace}; create it",
        )
    return ModelServer.model_validate({**found, "status": found.get("status") or {}})


async def find_training_job(work: Work[Any], name: str) -> LoRATrainingJob | None:
    """Return a LoRATrainingJob of the object's namespace; None where it does not exist.

    Args:
        work: The object that refers to it; woken when the job changes.
        name: Name of the job.
    """
    work.depends_on(TRAINING_JOB.plural, name)
    found = await work.context.kube.get(TRAINING_JOB, work.namespace, name)
    return None if found is None else LoRATrainingJob.model_validate({"status": {}, **found})


async def find_run(work: Work[Any], name: str) -> BenchmarkRun | None:
    """Return a BenchmarkRun of the object's namespace; None where it does not exist.

    Args:
        work: The object that refers to it; woken when the run changes.
        name: Name of the run.
    """
    work.depends_on(BENCHMARK_RUN.plural, name)
    return await _run(work, name)


async def require_baseline(work: Work[BenchmarkRun], name: str) -> BenchmarkRun:
    """Return the baseline of a run once it is complete.

    Args:
        work: The run; woken when the baseline changes.
        name: Name of the baseline.

    Raises:
        Waiting: The baseline does not exist yet or has not ended.
        Stalled: It failed, or the references form a cycle.
    """
    field = "spec.baselineRef.name"
    baseline = await find_run(work, name)
    if baseline is None:
        raise Waiting(
            Reason.REFERENCE_NOT_FOUND,
            f"{field}: BenchmarkRun {name} does not exist in namespace {work.namespace}; create it",
        )
    if baseline.status.is_true(ConditionType.COMPLETE):
        return baseline
    await _refuse_cycle(work, baseline)
    if baseline.status.is_true(ConditionType.FAILED):
        raise Stalled(
            Reason.REFERENCE_FAILED,
            f"{field}: BenchmarkRun {name} has failed; retry it with the annotation whetstone.dev/retry-requested-at, "
            "or name another run in a new object",
        )
    raise Waiting(Reason.REFERENCE_NOT_READY, f"{field}: BenchmarkRun {name} has not ended yet")


async def require_claims[R: (LoRATrainingJob, BenchmarkRun)](work: Work[R], fields: dict[str, str]) -> None:
    """Check that claims exist.

    Args:
        work: The object that mounts them.
        fields: Claim by the field that names it.

    Raises:
        Waiting: One does not exist.
    """
    for field, claim in fields.items():
        if await work.context.kube.get(CLAIM, work.namespace, claim) is None:
            raise Waiting(
                Reason.CLAIM_NOT_FOUND,
                f"{field}: PersistentVolumeClaim {claim} does not exist in namespace {work.namespace}; create it",
                LOOK_AGAIN_SECONDS,
            )


async def require_config_map(work: Work[Any], *, name: str, field: str) -> dict[str, Any]:
    """Return a ConfigMap.

    Args:
        work: The object that reads it.
        name: Name of the ConfigMap.
        field: Where the user named it.

    Raises:
        Waiting: It does not exist.
    """
    found = await work.context.kube.get(CONFIG_MAP, work.namespace, name)
    if found is None:
        message = f"{field}.name: ConfigMap {name} does not exist in namespace {work.namespace}; create it"
        raise Waiting(Reason.CONFIG_MAP_NOT_FOUND, message, LOOK_AGAIN_SECONDS)
    return found


async def require_config_map_key(work: Work[Any], *, name: str, key: str, field: str, binary: bool = True) -> str:
    """Return what a ConfigMap has under a key.

    Args:
        work: The object that reads it.
        name: Name of the ConfigMap.
        key: Key in it.
        field: Where the user named it.
        binary: Whether it may be binary data, which is returned in base64.

    Raises:
        Waiting: The ConfigMap, or the key in it, does not exist.
    """
    found = await require_config_map(work, name=name, field=field)
    held: dict[str, str] = {**(found.get("data") or {}), **((found.get("binaryData") or {}) if binary else {})}
    if key not in held:
        keys = ", ".join(sorted(held)) or "none"
        message = f"{field}.key: ConfigMap {name} has no key {key} (its keys: {keys}); add it"
        raise Waiting(Reason.CONFIG_MAP_NOT_FOUND, message, LOOK_AGAIN_SECONDS)
    return held[key]


async def require_authorities(work: Work[Any]) -> None:
    """Check that the certificate authorities that the administrator decided on are in the object's namespace.

    Args:
        work: The object whose pods mount them.

    Raises:
        Waiting: The ConfigMap, or the key in it, does not exist.
    """
    egress = work.context.settings.egress
    if egress.ca_config_map:
        field = "caBundle of the operator's chart"
        await require_config_map_key(work, name=egress.ca_config_map, key=egress.ca_key, field=field)


async def require_secret(work: Work[Any], name: str, *, scheme: Scheme, field: str) -> dict[str, str]:
    """Return the data of a Secret, in base64, that has a key which a kind of place knows.

    Args:
        work: The object whose pods read it.
        name: Name of the Secret.
        scheme: Scheme of the place.
        field: Where the user named it.

    Raises:
        Waiting: It does not exist, or lacks a key.
    """
    data = await _secret_data(work, name, field=field)
    lacking = missing_key(scheme, set(data))
    if lacking is not None:
        problem = f"{field}: Secret {name} has no key {lacking}; add it"
        raise Waiting(Reason.SECRET_NOT_FOUND, problem, LOOK_AGAIN_SECONDS)
    return data


async def require_secret_key(work: Work[Any], reference: SecretKeyRef, *, field: str) -> None:
    """Check that a key of a Secret exists.

    Args:
        work: The object whose pods read it.
        reference: Secret and key.
        field: Where the user named it.

    Raises:
        Waiting: It does not.
    """
    if reference.key not in await _secret_data(work, reference.name, field=f"{field}.name"):
        problem = f"{field}.key: Secret {reference.name} has no key {reference.key}; add it"
        raise Waiting(Reason.SECRET_NOT_FOUND, problem, LOOK_AGAIN_SECONDS)


async def _secret_data(work: Work[Any], name: str, *, field: str) -> dict[str, str]:
    secret = await work.context.kube.get(SECRET, work.namespace, name)
    if secret is None:
        problem = f"{field}: Secret {name} does not exist in namespace {work.namespace}; create it"
        raise Waiting(Reason.SECRET_NOT_FOUND, problem, LOOK_AGAIN_SECONDS)
    return secret.get("data") or {}


async def require_account(work: Work[BenchmarkRun], name: str) -> None:
    """Check that the runner's service account exists.

    Raises:
        Waiting: It does not.
    """
    if await work.context.kube.get(SERVICE_ACCOUNT, work.namespace, name) is None:
        raise Waiting(
            Reason.TRIALS_FORBIDDEN,
            f"ServiceAccount {name} does not exist in namespace {work.namespace}, so no trial could run; add the "
            "namespace to servedNamespaces in the values of the chart whetstone",
            LOOK_AGAIN_SECONDS,
        )


async def _run(work: Work[Any], name: str) -> BenchmarkRun | None:
    found = await work.context.kube.get(BENCHMARK_RUN, work.namespace, name)
    return None if found is None else BenchmarkRun.model_validate({**found, "status": found.get("status") or {}})


async def _refuse_cycle(work: Work[BenchmarkRun], baseline: BenchmarkRun) -> None:
    chain = [work.name, baseline.metadata.name]
    run: BenchmarkRun | None = baseline
    while run is not None and run.spec.baseline_ref is not None and len(chain) < LONGEST_CHAIN:
        following = run.spec.baseline_ref.name
        if following in chain or run.metadata.name == work.name:
            path = " -> ".join([*chain, following])
            raise Stalled(
                Reason.INVALID_SPEC,
                f"spec.baselineRef.name: the baselines form a cycle ({path}); create a run without baselineRef first",
            )
        chain.append(following)
        run = await _run(work, following)
