"""Groups trials that were not solved by what went wrong last."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from whetstone_api.run_artifact import TrialScore

from whetstone_artifacts.report.trials import EXIT_CODE, Step, TrialDetail
from whetstone_artifacts.report.untrusted import Shown

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
_ASSERTION: Final = re.compile(
    r"\A(E\s+\S|FAILED\b|not ok\b|FAIL\b|\w*Error\b|AssertionError\b)|\b(?:expected|mismatch)\b", re.IGNORECASE
)
"""How pytest, TAP and plain scripts begin the line that says what they miss."""
_REPEATED: Final = 3
_NOT_CONTENT: Final = "the last command succeeded, the verifier was not content"
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


@dataclass(frozen=True, kw_only=True)
class SharedPattern:
    """Failures of one kind over several runs.

    Args:
        what: What they have in common.
        runs: Those of each run, in the order of the runs.
    """

    what: str
    runs: list[Pattern]

    @property
    def total(self) -> int:
        """Trials of all runs."""
        return sum(len(run.trials) for run in self.runs)


def pattern_of(score: TrialScore, detail: TrialDetail | None) -> str:
    """Name what went wrong last in a trial.

    Args:
        score: The trial.
        detail: Its folder, where there is one.
    """
    if score.error:
        return score.error
    if detail is None:
        return "no folder of the trial"
    ran = [step for step in detail.steps if step.commands]
    if detail.left_out:
        return "too long to be looked at"
    if not ran:
        return "no command was run" if detail.steps else "no trajectory"
    if score.end == "Repeated" or _repeats(ran):
        return f"ran the same command at least {_REPEATED} times in a row"
    if score.end == "MaxTurns":
        return "ran out of turns"
    output = _of_output(ran[-1].outputs[-1]) if ran[-1].outputs else "the last command has no output on record"
    if output == _NOT_CONTENT and (line := verifier_line(detail.verdict)):
        return f"{_NOT_CONTENT}: {line}"
    return output


def shared(runs: Sequence[Sequence[Pattern]]) -> list[SharedPattern]:
    """Return the patterns of several runs side by side, most frequent first.

    Args:
        runs: The patterns of each run.
    """
    names = dict.fromkeys(pattern.what for run in runs for pattern in run)
    found = [
        SharedPattern(
            what=what,
            runs=[next((one for one in run if one.what == what), Pattern(what=what, trials=[])) for run in runs],
        )
        for what in names
    ]
    return sorted(found, key=lambda pattern: (-pattern.total, pattern.what))


def verifier_line(verdict: Shown) -> str:
    """Return the first line in which a verifier complains, without what differs from trial to trial; else nothing."""
    lines = (line.strip() for line in f"{verdict.head}\n{verdict.tail}".splitlines())
    return next((normalised(line) for line in lines if _ASSERTION.search(line)), "")


def _repeats(ran: Sequence[Step]) -> bool:
    commands = [command for step in ran for command in step.commands][-_REPEATED:]
    return len(commands) == _REPEATED and all(one.head.strip() and one == commands[0] for one in commands)


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
    code = EXIT_CODE.search(text)
    lines = [line for line in text.splitlines()[1 if code else 0 :] if line.strip() not in ("", "Output:")]
    complaint = next((line for line in reversed(lines) if _COMPLAINT.search(line)), None)
    if code is not None and code[1] == "0":
        return _NOT_CONTENT
    if complaint is None and code is not None and lines:
        complaint = lines[-1]
    if complaint is None:
        return f"exit code {code[1]}" if code else "no error in the last output, the verifier was not content"
    return f"exit code {code[1]}: {normalised(complaint)}" if code else normalised(complaint)
