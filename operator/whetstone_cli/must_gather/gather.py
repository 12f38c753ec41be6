"""Asks the cluster, one question after the other, and keeps what comes back; what is refused is a gap, not an end."""

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from whetstone_cli.kubectl import Kubectl, KubectlError, Object
from whetstone_cli.must_gather.plan import EVENTS, OURS, SECRETS, Ask, cluster_asks, namespace_asks, system_asks
from whetstone_cli.must_gather.redaction import Redactor, secret_names
from whetstone_cli.must_gather.summary import summary

_UNKNOWN_TYPE: Final = ("doesn't have a resource type", "could not find the requested resource")
_CONTAINERS: Final = ("initContainerStatuses", "containerStatuses")


class Gatherer:
    """One collection.

    Args:
        kubectl: The cluster.
        folder: Where the files go; it exists.
        progress: Gets what is asked next.
        log_lines: Lines of each log, from its end.
        most_pods: Pods whose logs are fetched; the troubled ones first.
    """

    def __init__(
        self, kubectl: Kubectl, folder: Path, progress: Callable[[str], None], *, log_lines: int, most_pods: int
    ) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self._progress = progress
        self._log_lines = log_lines
        self._most_pods = most_pods
        self._redactor = Redactor()
        self._found: dict[tuple[str, str], dict[str, Object]] = defaultdict(dict)
        """By namespace and resource, then by uid: the operator's namespace may be asked about twice."""
        self.gaps: list[str] = []
        """What could not be read, and why."""
        self.files = 0
        """Files written so far."""

    def collect(self, scope: str, system: str) -> None:
        """Collect everything.

        Args:
            scope: `--namespace=…` or `--all-namespaces`.
            system: The operator's namespace.

        Raises:
            KubectlError: The cluster cannot be reached at all.
            OSError: A file cannot be written.
        """
        self._progress("versions")
        versions = self._kubectl.run("version", "--output=yaml")
        for ask in (*namespace_asks(scope), *system_asks(system), *cluster_asks()):
            self._ask(ask)
        self._secrets()
        self._write_objects()
        self._write_logs()
        self._write("versions.txt", versions + _own_version() + "".join(self._images()))
        cleaned = [self._redactor.object(obj) for obj in self._all(OURS)]
        self._write("summary.txt", summary(cleaned, versions=_own_version(), gaps=self.gaps))

    def _ask(self, ask: Ask) -> None:
        self._progress(" ".join(ask.arguments))
        try:
            found = self._kubectl.get(*ask.arguments)
        except KubectlError as error:
            unknown = any(words in str(error) for words in _UNKNOWN_TYPE)
            if not (ask.optional and unknown):
                self.gaps.append(f"get {' '.join(ask.arguments)}: {error}")
            return
        for obj in found.get("items", [found]):
            self._keep(ask.resource, obj)

    def _keep(self, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        self._found[str(metadata.get("namespace", "")), resource].setdefault(metadata["uid"], obj)

    def _all(self, resources: Container[str]) -> list[Object]:
        return [obj for (_, kind), found in self._found.items() if kind in resources for obj in found.values()]

    def _secrets(self) -> None:
        """Read the Secrets that objects name, to know what must not be written; only their keys' names are kept."""
        for namespace, name in sorted(secret_names(self._all((*OURS, "pods")))):
            self._progress(f"{SECRETS} {namespace}/{name}")
            try:
                secret = self._kubectl.get("secret", name, f"--namespace={namespace}")
            except KubectlError as error:
                self.gaps.append(f"names of the keys of Secret {namespace}/{name}: {error}")
                continue
            self._redactor.learn(decoded(secret))
            self._keep(SECRETS, secret)

    def _write_objects(self) -> None:
        about = self._told_of()
        for (namespace, resource), known in sorted(self._found.items()):
            found = list(known.values())
            if resource == EVENTS:
                found = [event for event in found if about(event.get("involvedObject") or {})]
            folder = f"namespaces/{namespace}" if namespace else "cluster"
            items = [self._redactor.object(obj) for obj in found]
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1, ensure_ascii=False)
            self._write(f"{folder}/{resource.partition('.')[0]}.json", text + "\n")

    def _told_of(self) -> Callable[[Mapping[str, Any]], bool]:
        """Return whether an Event's object is one of those collected, or had been a child of ours and is gone."""
        uids = {uid for found in self._found.values() for uid in found}
        ours = {f"{obj['metadata']['name']}-" for obj in self._all(OURS)}
        return lambda regarding: regarding.get("uid") in uids or str(regarding.get("name")).startswith(tuple(ours))

    def _write_logs(self) -> None:
        pods = sorted(self._all(("pods",)), key=_is_well)
        for pod in pods[: self._most_pods]:
            for container, previous in logs_of(pod):
                self._write_log(pod, container, previous=previous)
        if (left := len(pods) - self._most_pods) > 0:
            self.gaps.append(f"logs of {left} more pods: more than --pods {self._most_pods}")

    def _write_log(self, pod: Mapping[str, Any], container: str, *, previous: bool) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        what = f"{namespace}/{name} {container}" + (" before its restart" if previous else "")
        self._progress(f"log of {what}")
        options = [f"--namespace={namespace}", f"--container={container}", f"--tail={self._log_lines}"]
        options += ["--previous"] if previous else []
        try:
            text = self._kubectl.run("logs", name, *options)
        except KubectlError as error:
            self.gaps.append(f"log of {what}: {error}")
            return
        file = f"{container}.previous.log" if previous else f"{container}.log"
        self._write(f"namespaces/{namespace}/logs/{name}/{file}", self._redactor.text(text))

    def _images(self) -> Iterable[str]:
        images = {str(one.get("image")) for pod in self._all(("pods",)) for one in pod["spec"]["containers"]}
        return (f"image: {image}\n" for image in sorted(images))

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
        self.files += 1


def logs_of(pod: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the logs of a pod that there may be: container, and whether it is that of the process before."""
    status = pod.get("status") or {}
    containers = [one for part in _CONTAINERS for one in status.get(part) or []]
    now = [(one["name"], False) for one in containers if "waiting" not in (one.get("state") or {})]
    before = [(one["name"], True) for one in containers if one.get("restartCount")]
    return [*now, *before]


def decoded(secret: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the values of a Secret."""
    return [base64.b64decode(value) for value in (secret.get("data") or {}).values()]


def _is_well(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status") or {}
    restarted = any(one.get("restartCount") for part in _CONTAINERS for one in status.get(part) or [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])
    return (ready or status.get("phase") == "Succeeded") and not restarted


def _own_version() -> str:
    try:
        return f"whetstone: {version('whetstone')}\n"
    except PackageNotFoundError:
        return "whetstone: not installed as a package\n"
