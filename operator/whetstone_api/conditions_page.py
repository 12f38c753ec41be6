"""Generator of `docs/conditions.md`: every condition, reason, label and annotation with its meaning.

Run `python -m whetstone_api.conditions_page --write` after a change of the vocabulary, `--check` to see whether the
page is current. The sentences are the strings below the members in `vocabulary.py`, read from its source.
"""

import ast
import sys
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from whetstone_api import vocabulary
from whetstone_api.generated import page_command
from whetstone_api.vocabulary import Annotation, ConditionType, Label, Reason

PAGE = Path("docs") / "conditions.md"
INTRODUCTION = """\
# Conditions and reasons

<!-- Generated from operator/whetstone_api/vocabulary.py by `make generate`. Do not edit. -->

    $ kubectl get modelserver demo --output jsonpath='{.status.conditions[?(@.type=="Ready")]}'
    {"type":"Ready","status":"False","reason":"ClaimNotFound","message":"spec.model.source.uri: claim …"}

Every object says how it is in `status.conditions`. `reason` is one of the words below; `message` names the object, the
field and what to do, and [troubleshooting.md](troubleshooting.md) has more about each reason. An Event's reason is the
reason of the condition that changed. `observedGeneration` is the generation of the spec that a condition was decided
for; a lower one than `metadata.generation` is out of date.

Wait for an object with `kubectl wait --for=condition=Ready modelserver/demo` (or `Complete`, `GatePassed`).
"""


@dataclass(frozen=True)
class Member:
    """One word of the vocabulary.

    Args:
        value: The word.
        meaning: Its sentence; empty where the source has none.
        group: Heading comment in the source above it; empty where there is none.
    """

    value: str
    meaning: str
    group: str


def members_of(enumeration: type[StrEnum], *, source: str) -> list[Member]:
    """Return the members of an enumeration with their sentences, in the order of the source.

    Args:
        enumeration: One of the classes of `vocabulary.py`.
        source: That module's text.

    Raises:
        LookupError: The text has no such class.
    """
    classes = [
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == enumeration.__name__
    ]
    if not classes:
        raise LookupError(f"the vocabulary has no class {enumeration.__name__}")
    body = classes[0].body
    lines = source.splitlines()
    meanings: dict[str, tuple[str, int]] = {}
    for node, following in pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = following.value.value if _is_sentence(following) else ""  # type: ignore[attr-defined]
            meanings[node.targets[0].id] = (" ".join(text.split()), node.lineno)
    result, group, seen = [], "", classes[0].lineno
    for member in enumeration:
        meaning, line = meanings[member.name]
        headings = [text.strip()[2:] for text in lines[seen - 1 : line - 1] if text.strip().startswith("# ")]
        group, seen = (headings[-1] if headings else group), line
        result.append(Member(member.value, meaning, group))
    return result


def _is_sentence(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def page() -> str:
    """Return the page as Markdown."""
    source = Path(vocabulary.__file__).read_text()
    parts = [INTRODUCTION, "## Condition types\n", _table("Type", members_of(ConditionType, source=source))]
    parts.append("## Reasons\n")
    reasons = members_of(Reason, source=source)
    for group in dict.fromkeys(member.group for member in reasons):
        parts += [f"### {group}\n", _table("Reason", [member for member in reasons if member.group == group])]
    for title, word, enumeration in (("Annotations", "Annotation", Annotation), ("Labels", "Label", Label)):
        parts += [f"## {title}\n", _table(word, members_of(enumeration, source=source))]
    return "\n".join(parts)


def _table(word: str, members: list[Member]) -> str:
    rows = [f"| `{member.value}` | {member.meaning or 'As recommended by Kubernetes.'} |" for member in members]
    return "\n".join([f"| {word} | Meaning |", "| --- | --- |", *rows]) + "\n"


main = page_command(page, PAGE)


if __name__ == "__main__":
    sys.exit(main(None))
