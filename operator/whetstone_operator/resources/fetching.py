"""The container that brings tasks, environments and agents into a runner's pod before the runner starts. Pure.

It alone mounts the Secrets of those places: the runner, agents and trials never hold them, and only read what it left.
"""

from typing import Any

from whetstone_api.benchmark_suite import TaskSet
from whetstone_api.benchmarkrun import BenchmarkRun, BenchmarkRunSpec
from whetstone_api.jobs import FetchedContent, FetchedFolder
from whetstone_api.run_artifact import SOURCES_FOLDER
from whetstone_api.source import FolderSource, SecretRef
from whetstone_api.vocabulary import (
    AGENT_ROOT,
    CONFIG_PATH,
    CONFIGMAPS_ROOT,
    SECRETS_ROOT,
    TASKS_ROOT,
    TERMINATION_PATH,
)

from whetstone_operator.resources.companion import Companion
from whetstone_operator.resources.egress import ca_mounts, egress_variables
from whetstone_operator.resources.pods import (
    claim_mount,
    container_security,
    empty_volume,
    image_fields,
    report_token_mount,
)
from whetstone_operator.resources.source_volumes import secret_mount, secret_volume
from whetstone_operator.settings import Settings

FETCH_CONTAINER = "fetch"
AGENT_VOLUME = "agent-code"
"""Volume of a user's agent that was fetched."""
_TASKS_VOLUME = "tasks"
_ARCHIVE_VOLUME = "task-archive"
_SCRATCH_VOLUME = "fetch-tmp"
_TMP = "/tmp"  # noqa: S108 - an emptyDir of the pod
_FOLDER_LIMIT = "20Gi"
"""Room for the largest archive and what it unpacks to; the container refuses more before the kubelet would."""
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_ROOTS = {
    FetchedContent.TASKS: (_TASKS_VOLUME, TASKS_ROOT),
    FetchedContent.ENVIRONMENT: (_TASKS_VOLUME, TASKS_ROOT),
    FetchedContent.AGENT: (AGENT_VOLUME, AGENT_ROOT),
}


def dataset_path(dataset: TaskSet) -> str:
    """Return where the runner finds the tasks."""
    place = dataset.in_claim
    return place.mount_path if place is not None else f"{TASKS_ROOT}/set"


def environment_path(environment: FolderSource) -> str:
    """Return where the runner finds what questions are about."""
    place = environment.in_claim
    return place.mount_path if place is not None else f"{TASKS_ROOT}/environment"


def fetched_folders(run: BenchmarkRun, *, job: str) -> list[FetchedFolder]:
    """Return what must be fetched before the runner starts.

    Args:
        run: The object.
        job: Name of the runner's Job: what its first pod finds holds for all its pods.
    """
    suite, agent = run.spec.suite, run.spec.agent
    records = f"{run.spec.output.mount_path}/{SOURCES_FOLDER}/{job}"
    found = []
    if suite.harbor is not None and suite.harbor.dataset.in_claim is None:
        found.append(_task_set(suite.harbor.dataset, record_path=f"{records}-tasks.json"))
    if suite.tool_use is not None and (environment := suite.tool_use.environment).in_claim is None:
        found.append(
            _folder(
                environment,
                what=FetchedContent.ENVIRONMENT,
                path=environment_path(environment),
                field="spec.suite.toolUse.environment",
                record_path=f"{records}-environment.json",
            )
        )
    if (source := agent.source) is not None and source.in_claim is None:
        found.append(
            _folder(
                source,
                what=FetchedContent.AGENT,
                path=agent.code_path or "",
                field="spec.agent.source",
                record_path=f"{records}-agent.json",
            )
        )
    return found


def _task_set(dataset: TaskSet, *, record_path: str) -> FetchedFolder:
    reference, packed = dataset.config_map_ref, dataset.packed_in_claim
    in_map = f"{CONFIGMAPS_ROOT}/{reference.name}/{reference.key}" if reference is not None else None
    return FetchedFolder(
        what=FetchedContent.TASKS,
        path=dataset_path(dataset),
        field=f"spec.suite.harbor.dataset ({dataset.told})",
        uri=dataset.uri if packed is None else None,
        archive_path=packed.mount_path if packed is not None else in_map,
        secret_path=_secret_path(dataset.secret_ref),
        digest=dataset.digest,
        record_path=record_path,
    )


def _folder(source: FolderSource, *, what: FetchedContent, path: str, field: str, record_path: str) -> FetchedFolder:
    packed = source.packed_in_claim
    return FetchedFolder(
        what=what,
        path=path,
        field=f"{field} ({source.uri})",
        uri=source.uri if packed is None else None,
        archive_path=packed.mount_path if packed is not None else None,
        secret_path=_secret_path(source.secret_ref),
        digest=source.digest,
        record_path=record_path,
    )


def fetch_companion(spec: BenchmarkRunSpec, folders: list[FetchedFolder], *, settings: Settings) -> Companion | None:
    """Return the container that fetches; None where nothing must be.

    Args:
        spec: The run's spec.
        folders: From `fetched_folders`.
        settings: What the administrator decided.
    """
    if not folders:
        return None
    roots = [_ROOTS[folder.what] for folder in folders]
    secrets = _secrets(spec)
    archive = spec.suite.harbor.dataset.config_map_ref if spec.suite.harbor is not None else None
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": CONFIG_PATH.rpartition("/")[0], "readOnly": True},
        {"name": _SCRATCH_VOLUME, "mountPath": _TMP},
        report_token_mount(),
        *(claim_mount(claim, read_only=claim != spec.output.claim) for claim in _claims(spec)),
        *({"name": name, "mountPath": root} for name, root in roots),
        *(secret_mount(name) for name in secrets),
        *ca_mounts(settings.egress),
    ]
    volumes = [
        empty_volume(_SCRATCH_VOLUME),
        *(empty_volume(name, size_limit=_FOLDER_LIMIT) for name, _ in roots),
        *(secret_volume(name) for name in secrets),
    ]
    if archive is not None:
        mounts.append({"name": _ARCHIVE_VOLUME, "mountPath": f"{CONFIGMAPS_ROOT}/{archive.name}", "readOnly": True})
        volumes.append({"name": _ARCHIVE_VOLUME, "configMap": {"name": archive.name}})
    return Companion(
        container=_container(spec, mounts, settings),
        mounts=tuple({"name": name, "mountPath": root, "readOnly": True} for name, root in roots),
        volumes=tuple(volumes),
    )


def _container(spec: BenchmarkRunSpec, mounts: list[dict[str, Any]], settings: Settings) -> dict[str, Any]:
    return {
        "name": FETCH_CONTAINER,
        **image_fields(settings, spec.image or settings.benchmark_image),
        "command": ["python3", "-m", "whetstone_agent.fetching"],
        "args": ["--config", CONFIG_PATH],
        "env": [
            {"name": "HOME", "value": _TMP},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            *egress_variables(settings.egress),
        ],
        "securityContext": container_security(),
        "terminationMessagePath": TERMINATION_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": spec.resources.to_wire() if spec.resources else _RESOURCES,
        "volumeMounts": mounts,
    }


def _places(spec: BenchmarkRunSpec) -> list[TaskSet | FolderSource]:
    harbor, tool_use = spec.suite.harbor, spec.suite.tool_use
    places = (
        harbor.dataset if harbor is not None else None,
        tool_use.environment if tool_use is not None else None,
        spec.agent.source,
    )
    return [place for place in places if place is not None]


def _secrets(spec: BenchmarkRunSpec) -> list[str]:
    references = [place.secret_ref for place in _places(spec)]
    return sorted({reference.name for reference in references if reference is not None})


def _claims(spec: BenchmarkRunSpec) -> list[str]:
    """Return the claims that it mounts: that of the results, and those with archives."""
    packed = [place.packed_in_claim for place in _places(spec)]
    return sorted({spec.output.claim, *(source.claim for source in packed if source is not None)})


def _secret_path(reference: SecretRef | None) -> str | None:
    return f"{SECRETS_ROOT}/{reference.name}" if reference else None
