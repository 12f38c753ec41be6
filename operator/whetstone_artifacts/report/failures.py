"""Groups trials that were not solved by what went wrong last."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from whetstone_artifacts.report.trials import TrialDetail
from whetstone_artifacts.report.untrusted import Shown

_EXIT: Final = re.compile(r"\AExit code: (-?\d+)")
_COMPLAINT: Final = re.compile(
    r"\b(errors?|exception|fatal|failed|failure|cannot|can't|denied|no such|not found|traceback|refused|invalid)\b",
    re.IGNORECASE,
)
_VARIABLE: Final = (
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b"), "#"),
    (re.compile(r"(?<![\w.])~?/?(?:[\w.@+-]+/)+[\w.@+-]*"), "PATH"),
    (re.compile(r"\d+"), "N"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`']*[`']|\u2018[^\u2019]*\u2019"), "'…'"),
    (re.compile(r"\s+"), " "),
)
_READ_CHARACTERS: Final = 400
_LINE_CHARACTERS: Final = 160


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Failures of one kind.

    Args:
        what: What they have in common.
        trials: Anchors of the trials, with their names.
    """

    what: str
    trials: list[tuple[str, str]]


def pattern_of(error: str | None, detail: TrialDetail | None) -> str:
    """Name what went wrong last in a trial.

    Args:
        error: Type of the exception that ended it.
        detail: Its folder, where there is one.
    """
    if error:
        return error
    if detail is None:
        return "no folder of the trial"
    ran = [step for step in detail.steps if step.commands]
    if detail.left_out:
        return "too long to be looked at"
    if not ran:
        return "no command was run" if detail.steps else "no trajectory"
    if not ran[-1].outputs:
        return "the last command has no output on record"
    return _of_output(ran[-1].outputs[-1])


def grouped(failures: Iterable[tuple[str, str, str]]) -> list[Pattern]:
    """Group failures, most frequent first.

    Args:
        failures: Pattern, anchor and name of each trial.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for what, anchor, name in failures:
        groups.setdefault(what, []).append((anchor, name))
    found = [Pattern(what=what, trials=trials) for what, trials in groups.items()]
    return sorted(found, key=lambda pattern: (-len(pattern.trials), pattern.what))


def normalised(line: str) -> str:
    """Return a line without what differs from trial to trial: numbers, paths, quoted names."""
    line = line[:_READ_CHARACTERS]
    for pattern, instead in _VARIABLE:
        line = pattern.sub(instead, line)
    return line.strip()[:_LINE_CHARACTERS]


def _of_output(output: Shown) -> str:
    text = f"{output.head}\n{output.tail}"
    code = _EXIT.search(text)
    lines = [line for line in text.splitlines()[1 if code else 0 :] if line.strip() not in ("", "Output:")]
    complaint = next((line for line in reversed(lines) if _COMPLAINT.search(line)), None)
    if code is not None and code[1] == "0":
        return "the last command succeeded, the verifier was not content"
    if complaint is None and code is not None and lines:
        complaint = lines[-1]
    if complaint is None:
        return f"exit code {code[1]}" if code else "no error in the last output, the verifier was not content"
    return f"exit code {code[1]}: {normalised(complaint)}" if code else normalised(complaint)
