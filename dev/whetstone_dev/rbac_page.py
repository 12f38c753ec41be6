"""Generator of `docs/rbac.md`: every right that the chart grants, a row for each verb, with its reason.

Run `python -m whetstone_dev.rbac_page --write` after a change of the chart's rules, `--check` to see whether the page
is current. The rules are those that Helm renders; the reason of a rule is the comment above it in the chart.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from whetstone_api.generated import page_command

from whetstone_dev.commands import DevError, run
from whetstone_dev.gobuild import HELM, build
from whetstone_dev.places import CHECKOUT
from whetstone_dev.versions import KUBERNETES

PAGE = Path("docs") / "rbac.md"
SYSTEM_NAMESPACE = "whetstone-system"
SERVED_NAMESPACE = "team"
_ROLES = ("ClusterRole", "Role")
_ACCOUNTS = {
    "whetstone-operator": "in every namespace, or in `watchNamespaces` where that value names some",
    "whetstone-leader": "in the operator's own namespace",
    "whetstone-token-reviewer": "for the cluster; its name ends in the operator's namespace",
    "whetstone-runner": "in each of `servedNamespaces`",
}
"""Each role with where its account has it."""
_OPERATOR, _RUNNER = ("whetstone-operator", "whetstone-leader", "whetstone-token-reviewer"), ("whetstone-runner",)
INTRODUCTION = """\
# Rights

<!-- Generated from the rules that charts/whetstone renders by `make generate`. Do not edit. -->

    kubectl auth can-i --list --as system:serviceaccount:whetstone-system:whetstone-operator --namespace team

Two service accounts have rights. A test asks a real API server for every verb of every resource, in both modes of the
chart: what is not listed here is refused. Another one works through servers, trainings and benchmarks, and finds each
verb in the API server's audit log: what is listed is used.

Pods of engines and trainings hold no token of Kubernetes, only one that is good for reports to the operator. A runner's
pod has its account's token in the container of the runner alone: neither tasks nor agents that users bring see it.
"""


@dataclass(frozen=True, kw_only=True, order=True)
class Right:
    """One verb on one resource.

    Args:
        role: Name of the role that grants it.
        group: API group; empty for the core.
        resource: Resource, with its subresource.
        verb: The verb.
        reason: What it is for.
    """

    role: str
    group: str
    resource: str
    verb: str
    reason: str


def render(*values: str) -> str:
    """Return the chart's manifests with one served namespace.

    Args:
        values: Further values, as `name=value`.
    """
    given = ["images.registry=registry.test", f"servedNamespaces={{{SERVED_NAMESPACE}}}", *values]
    arguments = ["--namespace", SYSTEM_NAMESPACE, "--kube-version", KUBERNETES]
    arguments += [part for value in given for part in ("--set", value)]
    return run([build(HELM), "template", "whetstone", CHECKOUT / "charts" / "whetstone", *arguments])


def rights(manifests: str) -> list[Right]:
    """Return what the roles of rendered manifests grant, in their order.

    Args:
        manifests: YAML documents with their comments.

    Raises:
        DevError: A rule has no comment above it.
    """
    return [right for text in re.split(r"^---$", manifests, flags=re.MULTILINE) for right in _of_document(text)]


def _of_document(text: str) -> Iterator[Right]:
    document: dict[str, Any] = yaml.safe_load(text) or {}
    if document.get("kind") not in _ROLES:
        return
    role, reasons = document["metadata"]["name"].removesuffix(f"-{SYSTEM_NAMESPACE}"), _reasons(text)
    for rule, reason in zip(document["rules"], reasons, strict=True):
        if not reason:
            raise DevError(f"{role}: the rule about {', '.join(rule['resources'])} has no comment; say what it is for")
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(role=role, group=group, resource=resource, verb=verb, reason=reason)


def _reasons(text: str) -> list[str]:
    """Return the comment above each rule of a document."""
    found, comment = [], ""
    for line in text[text.index("rules:") :].splitlines():
        stripped = line.strip()
        if stripped.startswith("- apiGroups"):
            found.append(comment)
        comment = f"{comment} {stripped[1:].strip()}".strip() if stripped.startswith("#") else ""
    return found


def page() -> str:
    """Return the page as Markdown."""
    granted = rights(render())
    unknown = {right.role for right in granted} - set(_ACCOUNTS)
    if unknown:
        raise DevError(f"the page does not know the roles {', '.join(sorted(unknown))}; add them to rbac_page.py")
    sections = [("The operator: `whetstone-operator`", _OPERATOR), ("The runner: `whetstone-runner`", _RUNNER)]
    return "\n".join([INTRODUCTION, *(_section(title, roles, granted) for title, roles in sections)])


def _section(title: str, roles: tuple[str, ...], granted: list[Right]) -> str:
    parts = [f"## {title}\n"]
    for role in roles:
        rows = [
            f"| {right.group or 'core'} | {right.resource} | {right.verb} | {right.reason} |"
            for right in granted
            if right.role == role
        ]
        head = [f"`{role}`, {_ACCOUNTS[role]}:\n", "| API group | Resource | Verb | Why |", "| --- | --- | --- | --- |"]
        parts.append("\n".join([*head, *rows]) + "\n")
    return "\n".join(parts)


main = page_command(page, PAGE)


if __name__ == "__main__":
    sys.exit(main(None))
