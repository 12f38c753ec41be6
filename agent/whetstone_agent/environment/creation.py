"""Create trial pods and sweep those that a killed runner left."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from kubernetes.aio.client.exceptions import ApiException
from kubernetes.utils.quantity import parse_quantity
from whetstone_api.vocabulary import Label

from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.errors import PodStartError, QuotaFullError, TooLargeError, TrialsForbiddenError
from whetstone_agent.environment.manifest import pod_selector

log = logging.getLogger(__name__)

_QUOTA_SECONDS: Final = 5.0
_TRIES: Final = 5
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_BEYOND_LIMIT: Final = re.compile(r"(?:maximum|minimum) \S+ usage per (?:Container|Pod)")
_BEYOND_QUOTA: Final = re.compile(r"exceeded quota: .*?, requested: (.*?), used: .*?, limited: (.*)$")


async def create_pod(cluster: Cluster, manifest: Mapping[str, Any], *, dry_run: bool = False) -> None:
    """Create a pod, or ask whether it could be created.

    Raises:
        TrialsForbiddenError: RBAC or pod security forbids it; the message is the server's answer.
        TooLargeError: A limit or the quota of the namespace lets no pod have what it asks for.
        QuotaFullError: The namespace's quota has no room for it now.
        PodStartError: The server refuses for another reason.
    """
    namespace = manifest["metadata"]["namespace"]
    options = {"dry_run": "All"} if dry_run else {}
    for attempt in range(1, _TRIES + 1):
        try:
            await cluster.core.create_namespaced_pod(namespace, dict(manifest), **options)
        except ApiException as error:
            message = _answer(error)
            if error.status in _PASSING and attempt < _TRIES:
                await asyncio.sleep(0.25 * 2**attempt)
                continue
            if error.status == 409 and attempt > 1:
                return  # an earlier try arrived, though its answer did not
            if error.status == 403 and too_large(message):
                raise TooLargeError(message) from error
            if error.status == 403 and "exceeded quota" in message:
                raise QuotaFullError(message) from error
            if error.status == 403:
                raise TrialsForbiddenError(message) from error
            raise PodStartError(f"the API server refuses the trial pod: {message}") from error
        return


def too_large(answer: str) -> bool:
    """Return whether the API server refuses a pod that it would refuse in an empty namespace, too.

    Args:
        answer: What it says: the words of the admission plugins LimitRanger and ResourceQuota.
    """
    if _BEYOND_LIMIT.search(answer):
        return True
    found = _BEYOND_QUOTA.search(answer)
    if found is None:
        return False
    requested, limited = (_quantities(part) for part in found.groups())
    return any(amount > limited[name] for name, amount in requested.items() if name in limited)


def _quantities(listed: str) -> dict[str, Decimal]:
    """Return the amounts of a list, as in `limits.cpu=2,limits.memory=4Gi`."""
    pairs = (one.partition("=") for one in listed.split(","))
    return {name.strip(): parse_quantity(amount) for name, _, amount in pairs}


async def create_when_quota_allows(cluster: Cluster, manifest: Mapping[str, Any], *, limit_seconds: float) -> None:
    """Create a pod; while the namespace's quota is full, wait as for a node.

    Raises:
        TrialsForbiddenError: The API server forbids it for another reason.
        TooLargeError: As `create_pod`.
        PodStartError: The quota was full for too long, or the server refuses for another reason.
    """
    answer = ""
    try:
        async with asyncio.timeout(limit_seconds):
            while True:
                try:
                    return await create_pod(cluster, manifest)
                except QuotaFullError as error:
                    answer = str(error)
                await asyncio.sleep(_QUOTA_SECONDS)
    except TimeoutError as error:
        message = f"the namespace's quota had no room for the trial pod within {limit_seconds:.0f} s: {answer}"
        raise PodStartError(message) from error


async def ensure_policy(cluster: Cluster, manifest: Mapping[str, Any]) -> None:
    """Create a NetworkPolicy unless this runner has made it before.

    Raises:
        TrialsForbiddenError: RBAC forbids it.
        PodStartError: The server refuses for another reason.
    """
    name = manifest["metadata"]["name"]
    if name in cluster.policies:
        return
    try:
        await cluster.networking.create_namespaced_network_policy(manifest["metadata"]["namespace"], dict(manifest))
    except ApiException as error:
        if error.status == 403:
            raise TrialsForbiddenError(_answer(error)) from error
        if error.status != 409:
            raise PodStartError(f"the API server refuses the NetworkPolicy {name}: {_answer(error)}") from error
    cluster.policies.add(name)


async def sweep(benchmark_run: str) -> int:
    """Delete the trial pods and NetworkPolicies that dead runners of the same run left.

    A run may have several runners, one a shard; what belongs to those that live is left alone.

    Returns:
        The number of pods.
    """
    cluster, runner = await Cluster.shared(), Runner.from_environment()
    namespace = runner.namespace
    pods = await cluster.core.list_namespaced_pod(namespace, label_selector=pod_selector(benchmark_run))
    policies = await cluster.networking.list_namespaced_network_policy(
        namespace, label_selector=f"{Label.BENCHMARK_RUN.value}={benchmark_run}"
    )
    alive: dict[tuple[str, str], bool] = {}
    for thing in [*pods.items, *policies.items]:
        for owner in _owners(thing):
            if owner not in alive:
                alive[owner] = owner[1] == runner.pod_uid or await _lives(cluster, namespace, *owner)

    def orphans(things: Sequence[Any]) -> list[str]:
        return [
            one.metadata.name
            for one in things
            if one.metadata.deletion_timestamp is None and not any(alive[owner] for owner in _owners(one))
        ]

    names = orphans(pods.items)
    await asyncio.gather(*(delete_pod(cluster, namespace, name) for name in names))
    # Only then: without its policy a pod's network is open.
    for name in orphans(policies.items):
        try:
            await cluster.networking.delete_namespaced_network_policy(name, namespace)
        except ApiException as error:
            if error.status != 404:
                raise
    return len(names)


def _owners(thing: Any) -> list[tuple[str, str]]:
    return [(one.name, one.uid) for one in thing.metadata.owner_references or [] if one.kind == "Pod"]


async def _lives(cluster: Cluster, namespace: str, name: str, uid: str) -> bool:
    try:
        pod = await cluster.core.read_namespaced_pod(name, namespace)
    except ApiException as error:
        if error.status == 404:
            return False
        raise
    return pod.metadata.uid == uid and pod.status.phase in ("Pending", "Running", "Unknown")


async def delete_pod(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete a pod; one that is gone is fine.

    Raises:
        ApiException: The server does not delete it.
    """
    try:
        await cluster.core.delete_namespaced_pod(name, namespace, grace_period_seconds=1)
    except ApiException as error:
        if error.status != 404:
            raise


def _answer(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
