"""Generator of `docs/troubleshooting.md`: for every reason what it means, how to look, and what to do.

Run `python -m whetstone_api.troubleshooting_page --write` after a change of the vocabulary or of the remedies,
`--check` to see whether the page is current.
"""

import sys
from pathlib import Path

from whetstone_api import vocabulary
from whetstone_api.conditions_page import Member, members_of
from whetstone_api.generated import page_command
from whetstone_api.remedies import REMEDIES
from whetstone_api.vocabulary import Annotation, Reason

PAGE = Path("docs") / "troubleshooting.md"
INTRODUCTION = f"""\
# Troubleshooting

<!-- Generated from operator/whetstone_api/vocabulary.py and remedies/ by `make generate`. Do not edit. -->

    kubectl describe modelserver demo       # conditions, and the Events that led to them, in order
    whetstone must-gather -n team           # all that a report of a problem needs, without Secrets

Find the `reason` of the condition that is not as it should be, then its entry below. The condition's `message` names
the object, the field and the fix; the entry is the general rule. In the commands, `KIND`, `NAME` and `NAMESPACE` are
those of the object with the condition. What the conditions mean is in [conditions.md](conditions.md), what
to collect for a report in [must-gather.md](must-gather.md).

## Before all

- An object has no conditions at all: does an operator lead, and does it watch the namespace (`watchNamespaces` of the
  chart)? `kubectl get leases,pods -n whetstone-system`
- `observedGeneration` of a condition is below `metadata.generation`: the operator has not looked at your change yet. A
  queue that stands still raises the alert `WhetstoneQueueStuck` ([monitoring.md](monitoring.md)).
- kubectl does not know the kinds: install the chart `whetstone-crds`.
- Events are gone: Kubernetes keeps them for an hour. Conditions stay.

## Ask for a retry

A training or a benchmark that has failed stays so until you have mended the cause and say so:

    kubectl annotate --overwrite KIND NAME -n NAMESPACE {Annotation.RETRY}="$(date)"

Checkpoints and finished trials are kept. A ModelServer needs no such word.
"""


def page() -> str:
    """Return the page as Markdown."""
    members = members_of(Reason, source=Path(vocabulary.__file__).read_text())
    parts = [INTRODUCTION]
    for group in dict.fromkeys(member.group for member in members):
        parts.append(f"## {group}\n")
        parts += [_entry(member) for member in members if member.group == group]
    return "\n".join(parts)


def _entry(member: Member) -> str:
    remedy = REMEDIES[Reason(member.value)]
    on = ", ".join(f"`{name}`" for name in remedy.on)
    seen = f" On {on}." if on else ""
    look = "\n".join(f"    {command}" for command in remedy.look)
    return f"### {member.value}\n\n{member.meaning}{seen}\n\n{look}\n\n{remedy.do}\n"


main = page_command(page, PAGE)


if __name__ == "__main__":
    sys.exit(main(None))
