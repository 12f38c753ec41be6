"""Whether the API server would take a pod: only a pod shows a misspelt field, or a class that does not exist."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from whetstone_api.schema import Resource
from whetstone_api.vocabulary import Reason

from whetstone_operator.kube import KubeError, Object
from whetstone_operator.resources.pod_template import FIELD
from whetstone_operator.runtime.outcome import Interrupt, Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

FORBIDDEN_POLL_SECONDS = 10.0
"""A priority class or a runtime class may come later."""
_NO_VERDICT = ("exceeded quota", 'cannot create resource "pods"')
"""In refusals that say nothing of a pod: it would take the place of another, or we may not ask."""


async def judge_pods[R: Resource](
    work: Work[R], template: Mapping[str, Any], *, name: str
) -> tuple[Object | None, Interrupt | None]:
    """Return the pod that the API server would make of a template, or why it would make none.

    Args:
        work: The object that the pods are for.
        template: Pod template, with `metadata` and `spec`.
        name: Name of what makes the pods.

    Returns:
        The pod and no refusal, a refusal and no pod, or neither where nothing can be said.
    """
    # A name of chance would give the message, and with it the status, another text each time.
    metadata = {**template["metadata"], "name": f"{name}-dry-run", "namespace": work.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        return await work.context.kube.judge(pod), None
    except KubeError as error:
        message = f"{FIELD}: the API server refuses such a pod: {error.message}"
        if error.refused:
            return None, Stalled(Reason.APPLY_REFUSED, message)
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        if any(words in error.message for words in _NO_VERDICT):
            return None, None
        return None, Waiting(Reason.APPLY_REFUSED, message, FORBIDDEN_POLL_SECONDS)
