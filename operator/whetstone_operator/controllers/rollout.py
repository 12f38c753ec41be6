"""What a rollout changes, read from the pods that it replaces. Pure.

Adapters and aliases are hot: they never appear here. Everything that does restarts engines.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whetstone_api.vocabulary import Annotation

MAX_CHANGES = 5


def restart_causes(pods: Sequence[Mapping[str, Any]], template: Mapping[str, Any]) -> list[str]:
    """Return what differs between running pods and the wanted one, as `--flag=old -> --flag=new` and the like.

    Args:
        pods: Live pods of the server.
        template: The pod template of its Deployment, as the API server stores it.

    Returns:
        At most `MAX_CHANGES` sentences, none when every pod is as wanted.
    """
    causes: dict[str, None] = {}
    wanted = {container["name"]: container for container in template["spec"]["containers"]}
    for pod in pods:
        causes.update(dict.fromkeys(_overlay_changes(pod, template)))
        for container in pod["spec"]["containers"]:
            if container["name"] in wanted:
                causes.update(dict.fromkeys(_changes(container, wanted[container["name"]])))
    return list(causes)[:MAX_CHANGES]


def _overlay_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if _annotations(old).get(Annotation.POD_TEMPLATE) != _annotations(new).get(Annotation.POD_TEMPLATE):
        yield "podTemplate"
    before, after = (_short_digest(_annotations(one).get(Annotation.CHAT_TEMPLATE)) for one in (old, new))
    if before != after:
        yield f"chatTemplate {before} -> {after}"


def _short_digest(text: str | None) -> str:
    return "none" if text is None else f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _annotations(one: Mapping[str, Any]) -> Mapping[str, str]:
    return (one.get("metadata") or {}).get("annotations") or {}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    name = new["name"]
    if old.get("image") != new.get("image"):
        yield f"{name} image {old.get('image')} -> {new.get('image')}"
    yield from _pairs(_flags(old.get("args")), _flags(new.get("args")))
    before, after = _environment(old), _environment(new)
    yield from (f"{name} environment {key}" for key in sorted(before | after) if before.get(key) != after.get(key))
    if _resources(old) != _resources(new):
        yield f"{name} resources"


def _pairs(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for flag in dict.fromkeys((*old, *new)):
        if old.get(flag) != new.get(flag):
            yield f"{old.get(flag, 'none')} -> {new.get(flag, 'none')}"


def _flags(arguments: Sequence[str] | None) -> dict[str, str]:
    """Return each argument by its flag's name; others by their place."""
    return {
        argument.partition("=")[0] if argument.startswith("-") else f"#{place}": argument
        for place, argument in enumerate(arguments or ())
    }


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's resources with the requests that Kubernetes gives to a pod's limits, not to a template's."""
    given = container.get("resources") or {}
    return {**given, "requests": {**(given.get("limits") or {}), **(given.get("requests") or {})}}


def _environment(container: Mapping[str, Any]) -> dict[str, Any]:
    return {item["name"]: item for item in container.get("env") or ()}
