"""Whether the namespace lets the pods of tasks have what the tasks ask for, before any of them is made."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.vocabulary import TaskRefusal

from whetstone_agent.environment.errors import TooLargeError
from whetstone_agent.environment.manifest import asked_resources
from whetstone_agent.tasks import AdmittedTask

type Ask = Callable[[Mapping[str, str]], Awaitable[None]]
"""Asks the API server for a pod of such resources in a dry run; raises `TooLargeError` where no pod may have them."""


async def tasks_too_large(tasks: Sequence[AdmittedTask], ask: Ask) -> list[RefusedTask]:
    """Return the tasks of which a pod asks for more than any may have.

    Args:
        tasks: The tasks.
        ask: Asks the API server; once for what several tasks ask for alike.
    """
    answers: dict[frozenset[tuple[str, str]], str | None] = {}
    refused = []
    for task in tasks:
        async for section, answer in _answers(task, ask, answers):
            if answer is not None:
                refused.append(_refused(task, section, answer))
                break
    return refused


async def _answers(
    task: AdmittedTask, ask: Ask, known: dict[frozenset[tuple[str, str]], str | None]
) -> AsyncIterator[tuple[str, str | None]]:
    for section, resources in _containers(task):
        key = frozenset(resources.items())
        if key not in known:
            try:
                await ask(resources)
                known[key] = None
            except TooLargeError as error:
                known[key] = str(error)
        yield section, known[key]


def _containers(task: AdmittedTask) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what the pods of a trial ask for, with the table of `task.toml` that says it."""
    from harbor.models.task.task import Task

    config: Any = Task(task.path).config
    yield "environment", asked_resources(config.environment)
    verifiers = [("verifier", config.verifier)]
    verifiers += [(f"steps.{step.name}.verifier", step.verifier) for step in config.steps or []]
    for section, verifier in verifiers:
        own = getattr(verifier, "environment", None)
        if own is not None:
            yield f"{section}.environment", asked_resources(own)


def _refused(task: AdmittedTask, section: str, answer: str) -> RefusedTask:
    message = (
        f"asks in [{section}] for more than a pod of the namespace may have: {answer}; raise that limit, set"
        " spec.suite.harbor.trialResources, or exclude it"
    )
    return RefusedTask(task=task.name, reason=TaskRefusal.RESOURCES, message=message)
