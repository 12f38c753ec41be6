"""Lay `spec.podTemplate` over the pod template of pods of ours, within what users may decide. Pure.

What is allowed is listed, not what is forbidden: a field that a later Kubernetes brings stays closed until somebody has
thought about it. Pods stay `restricted`, keep their names, ports, probes and commands, and hold no token but ours.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whetstone_api.digests import canonical_digest
from whetstone_api.engine import OWN_VARIABLES
from whetstone_api.pod_template import PodTemplate
from whetstone_api.vocabulary import GROUP, Annotation

from whetstone_operator.resources.overlay import OverlayError, members, merge
from whetstone_operator.resources.pods import container_security

FIELD = "spec.podTemplate"
POD_FIELDS = frozenset(
    {
        *("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName"),
        *("runtimeClassName", "priorityClassName", "preemptionPolicy", "resourceClaims"),
        *("imagePullSecrets", "hostAliases", "dnsPolicy", "dnsConfig"),
        *("securityContext", "volumes", "initContainers", "containers"),
    }
)
"""Fields of a pod's spec that may be given."""
SECURITY_FIELDS = frozenset({"fsGroup", "fsGroupChangePolicy", "supplementalGroups", "seLinuxOptions"})
"""Fields of a pod's security context that may be given."""
VOLUME_SOURCES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""What an added volume may be: no path of the node, and no image, which an API server without them drops silently."""
ADDED_CONTAINER_FIELDS = frozenset(
    {
        *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "ports"),
        *("resources", "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
        *("restartPolicy", "terminationMessagePath", "terminationMessagePolicy", "securityContext"),
    }
)
ADDED_SECURITY_FIELDS = frozenset({"readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser"})


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What users may decide of one sort of our pods.

    Args:
        pods: What messages call them.
        main: The container that does their work; its requests and limits are in `spec.resources`.
        containers: Fields of our own containers that may be given; of those not named, `name` and `resources`.
        variables: Pattern of the names of variables that are ours to set.
        grace: Where the grace period comes from.
        elsewhere: Where else variables can be set, for messages.
    """

    pods: str
    main: str
    containers: Mapping[str, frozenset[str]]
    variables: str
    grace: str
    elsewhere: str = ""

    def advice(self, name: str) -> str | None:
        """Return what to do instead of setting a field."""
        account = f"{self.pods} use no service account"
        return {
            "terminationGracePeriodSeconds": self.grace,
            "serviceAccountName": account,
            "serviceAccount": account,
            "automountServiceAccountToken": account,
            "nodeName": "it bypasses the scheduler; use nodeSelector or affinity",
        }.get(name)


ENGINE_PODS = Policy(
    pods="engine pods",
    main="engine",
    containers={
        "engine": frozenset({"name", "env", "resources", "volumeMounts"}),
        "fetch-model": frozenset({"name", "env", "resources"}),
    },
    variables="|".join(OWN_VARIABLES),
    grace="it follows from spec.drain.seconds; set that",
    elsewhere=", or spec.engine.env",
)
_SCRATCH = "/tmp/"  # noqa: S108 - an emptyDir of the pod


def lay_over(
    template: Mapping[str, Any], overlay: PodTemplate | None, *, policy: Policy = ENGINE_PODS
) -> dict[str, Any]:
    """Return a pod template with a user's part laid over it.

    Args:
        template: Ours, with `metadata` and `spec`.
        overlay: The user's; None: ours as it is.
        policy: What users may decide of such pods.

    Raises:
        OverlayError: The part says what users may not decide; its path starts with `spec.podTemplate`.
    """
    if overlay is None:
        return dict(template)
    metadata = _metadata(template["metadata"], overlay)
    if overlay.spec is None:
        return {**template, "metadata": metadata}
    path = f"{FIELD}.spec"
    for problem in _problems(template["spec"], overlay.spec, path=path, policy=policy):
        raise problem
    spec = merge(_with_security(template["spec"], overlay.spec, path=path), overlay.spec, path=path)
    return {**template, "metadata": metadata, "spec": spec}


def overlay_digest(overlay: PodTemplate | None) -> str | None:
    """Return what tells one overlay from another: the value of `Annotation.POD_TEMPLATE`; None without an overlay."""
    return None if overlay is None else canonical_digest(overlay.to_wire())


def _metadata(ours: Mapping[str, Any], overlay: PodTemplate) -> dict[str, Any]:
    labels, annotations = dict(ours.get("labels") or {}), dict(ours.get("annotations") or {})
    if overlay.metadata is not None:
        path = f"{FIELD}.metadata"
        labels |= _foreign(overlay.metadata.labels or {}, taken=labels, path=f"{path}.labels")
        annotations |= _foreign(overlay.metadata.annotations or {}, taken=annotations, path=f"{path}.annotations")
    return {**ours, "labels": labels, "annotations": {**annotations, Annotation.POD_TEMPLATE: overlay_digest(overlay)}}


def _foreign(given: Mapping[str, str], *, taken: Mapping[str, str], path: str) -> Mapping[str, str]:
    for name in given:
        if name in taken or name.startswith(f"{GROUP}/"):
            raise OverlayError(f"{path}[{name}]", "is set by Whetstone; leave it out")
    return given


def _problems(ours: Mapping[str, Any], spec: Mapping[str, Any], *, path: str, policy: Policy) -> Iterator[OverlayError]:
    """Yield what an overlay must not say, the first of it first."""
    yield from _closed(spec, POD_FIELDS, path=path, policy=policy)
    security = _map(spec.get("securityContext"), path=f"{path}.securityContext")
    yield from _closed(security, SECURITY_FIELDS, path=f"{path}.securityContext")
    volumes = members(spec.get("volumes") or [], name="volumes", path=f"{path}.volumes")
    for name, volume in volumes.items():
        yield from _volume_problems(volume, ours, path=f"{path}.volumes[{name}]")
    owned = {item["name"]: item for item in [*ours.get("initContainers", []), *ours["containers"]]}
    for field in ("initContainers", "containers"):
        homes = {item["name"] for item in ours.get(field, [])}
        for name, item in members(spec.get(field) or [], name=field, path=f"{path}.{field}").items():
            where = f"{path}.{field}[{name}]"
            if name in owned and name not in homes:
                yield OverlayError(where, "is the name of a container of Whetstone; choose another")
            elif name in owned:
                yield from _our_problems(owned[name], item, path=where, policy=policy)
            else:
                yield from _added_problems(item, owned, path=where)
            yield from _mount_problems(owned.get(name, {}), item, volumes=volumes, path=where)


def _map(value: Any, *, path: str) -> Mapping[str, Any]:
    """Return a map, empty where there is none."""
    if not isinstance(value, Mapping | None):
        raise OverlayError(path, "must be a map")
    return value or {}


def _maps(items: Any, *, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the maps of a list, each with its path."""
    if not isinstance(items, list | None):
        raise OverlayError(path, "must be a list")
    return [(f"{path}[{place}]", _map(item, path=f"{path}[{place}]")) for place, item in enumerate(items or [])]


def _closed(
    given: Mapping[str, Any], allowed: frozenset[str], *, path: str, policy: Policy | None = None
) -> Iterator[OverlayError]:
    """Yield the fields of a map that are not allowed."""
    for name in given:
        if name not in allowed:
            advice = (policy and policy.advice(name)) or f"only {', '.join(sorted(allowed))} can be given here"
            yield OverlayError(f"{path}.{name}", f"must not be set: {advice}")


def _volume_problems(volume: Mapping[str, Any], ours: Mapping[str, Any], *, path: str) -> Iterator[OverlayError]:
    if volume["name"] in {item["name"] for item in ours["volumes"]}:
        yield OverlayError(path, "is the name of a volume of Whetstone; choose another")
    yield from _closed(volume, VOLUME_SOURCES | {"name"}, path=path)
    projected = _map(volume.get("projected"), path=f"{path}.projected")
    for where, source in _maps(projected.get("sources"), path=f"{path}.projected.sources"):
        if "serviceAccountToken" in source:
            yield OverlayError(where, "must hold no token of a service account")


def _our_problems(
    ours: Mapping[str, Any], item: Mapping[str, Any], *, path: str, policy: Policy
) -> Iterator[OverlayError]:
    """Yield what must not be said of a container of ours."""
    name = item["name"]
    yield from _closed(item, policy.containers.get(name, frozenset({"name", "resources"})), path=path)
    resources = _map(item.get("resources"), path=f"{path}.resources")
    if name == policy.main and {"requests", "limits"} & resources.keys():
        yield OverlayError(f"{path}.resources", "only claims can be given here; set spec.resources")
    taken = {variable["name"] for variable in ours.get("env") or []}
    for variable in members(item.get("env") or [], name="env", path=f"{path}.env"):
        if variable in taken or re.fullmatch(policy.variables, variable):
            words = f"is set by Whetstone{policy.elsewhere}; leave it out"
            yield OverlayError(f"{path}.env[{variable}]", words)


def _added_problems(
    item: Mapping[str, Any], owned: Mapping[str, Mapping[str, Any]], *, path: str
) -> Iterator[OverlayError]:
    """Yield what must not be said of a user's own container."""
    yield from _closed(item, ADDED_CONTAINER_FIELDS, path=path)
    security = _map(item.get("securityContext"), path=f"{path}.securityContext")
    yield from _closed(security, ADDED_SECURITY_FIELDS, path=f"{path}.securityContext")
    if security.get("runAsUser") == 0 or security.get("runAsNonRoot") is False:
        yield OverlayError(f"{path}.securityContext", "must not run as root; choose another user")
    taken = [(port["containerPort"], name) for name, one in owned.items() for port in one.get("ports") or []]
    for where, port in _maps(item.get("ports"), path=f"{path}.ports"):
        if "hostPort" in port or "hostIP" in port:
            yield OverlayError(where, "must not open a port of the node; leave hostPort out")
        for number, holder in taken:
            if port.get("containerPort") == number:
                yield OverlayError(where, f"is the port of container {holder}; choose another")


def _mount_problems(
    ours: Mapping[str, Any], item: Mapping[str, Any], *, volumes: Mapping[str, Any], path: str
) -> Iterator[OverlayError]:
    """Yield mounts of volumes that are not the user's, and over places that are ours."""
    taken = [mount["mountPath"].rstrip("/") for mount in ours.get("volumeMounts") or []]
    mounts = members(item.get("volumeMounts") or [], name="volumeMounts", path=f"{path}.volumeMounts")
    for place, mount in mounts.items():
        where = f"{path}.volumeMounts[{place}]"
        if str(mount.get("name")) not in volumes:
            yield OverlayError(where, "must be of a volume that podTemplate adds")
        if not place.startswith("/") or {"..", "."} & set(place.split("/")):
            yield OverlayError(where, "must be a plain absolute path")
        given = place.rstrip("/")
        within_scratch = given.startswith(_SCRATCH)
        clash = next((one for one in taken if f"{one}/".startswith(f"{given}/")), None)
        clash = clash or next((one for one in taken if f"{given}/".startswith(f"{one}/") and not within_scratch), None)
        if clash:
            yield OverlayError(where, f"stands in the way of {clash}; choose another path")


def _with_security(ours: Mapping[str, Any], spec: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """Return our spec with the containers that an overlay adds, under the `restricted` standard and still empty."""
    result = dict(ours)
    restricted = {name: value for name, value in container_security().items() if name != "readOnlyRootFilesystem"}
    for field in ("initContainers", "containers"):
        known = {item["name"] for item in ours.get(field, [])}
        given = members(spec.get(field) or [], name=field, path=f"{path}.{field}")
        added = [{"name": name, "securityContext": restricted} for name in given if name not in known]
        if added:
            result[field] = [*ours.get(field, []), *added]
    return result
