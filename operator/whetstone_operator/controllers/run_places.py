"""Where a run's tasks, environment and agent lie: what must be there before a pod of it starts."""

from whetstone_api.benchmark_suite import TaskSet
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.source import SecretRef, scheme_of

from whetstone_operator.controllers.references import require_config_map, require_config_map_key, require_secret
from whetstone_operator.runtime.reconcile import Work


async def require_places(work: Work[BenchmarkRun]) -> None:
    """Check that ConfigMaps and Secrets of tasks, environment and agent exist, with the keys that are needed.

    Raises:
        Waiting: One does not, or lacks a key: a pod would hang without a word.
    """
    suite, agent = work.resource.spec.suite, work.resource.spec.agent
    if suite.harbor is not None:
        await _require_task_set(work, suite.harbor.dataset)
    if suite.tool_use is not None:
        environment, field = suite.tool_use.environment, "spec.suite.toolUse.environment.secretRef"
        await _require_keys(work, environment.uri, environment.secret_ref, field=field)
    if (code := agent.config_map_ref) is not None:
        await require_config_map(work, name=code.name, field="spec.agent.configMapRef")
    if agent.source is not None:
        await _require_keys(work, agent.source.uri, agent.source.secret_ref, field="spec.agent.source.secretRef")


async def _require_task_set(work: Work[BenchmarkRun], dataset: TaskSet) -> None:
    if (archive := dataset.config_map_ref) is not None:
        field = "spec.suite.harbor.dataset.configMapRef"
        await require_config_map_key(work, name=archive.name, key=archive.key, field=field)
    await _require_keys(work, dataset.uri, dataset.secret_ref, field="spec.suite.harbor.dataset.secretRef")


async def _require_keys(work: Work[BenchmarkRun], uri: str | None, reference: SecretRef | None, *, field: str) -> None:
    if uri is not None and reference is not None:
        await require_secret(work, reference.name, scheme=scheme_of(uri), field=field)
