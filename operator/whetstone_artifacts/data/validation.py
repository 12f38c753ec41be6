"""The check of training data: form, roles, calls of tools, duplicates, leakage between splits, length, amount.

Files are read once and row by row; what must be remembered of rows is on disk (`seen`) but for two lengths each.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from whetstone_artifacts.data.example import Example, read_example, text_of
from whetstone_artifacts.data.findings import Finding, Level, Rule, Spread, spread_of
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.ladder import Rung, rung_of
from whetstone_artifacts.data.lines import Line, read_lines
from whetstone_artifacts.data.seen import Seen, signature_of
from whetstone_artifacts.data.tool_calls import call_problems

ALIKE: Final = 0.9
"""Rows that are this alike are nearly the same, where nothing else is asked for."""
LEAST_ROWS: Final = 200
"""Fewer rows rarely change anything that can be measured."""
ENOUGH_ROWS: Final = {
    "tone and form of answers": 100,
    "calls of tools": 500,
    "work in several steps": 1000,
}
"""Rows from which it works as a rule, by what is learned; rules of thumb of those who fine-tune for agents."""
_SEVERAL_STEPS: Final = (Rung.SEQUENTIAL, Rung.NESTED, Rung.MULTI_TURN)
_SAME, _QUESTION, _TASK = range(3)
"""Kinds of keys in `Seen`."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is asked of rows.

    Args:
        alike: Likeness, from 0 to 1, from which two rows are nearly the same; None looks for none.
        longest: Most characters of a row; None for any number.
        longest_tokens: Most tokens of a row; None for any number.
    """

    alike: float | None = ALIKE
    longest: int | None = None
    longest_tokens: int | None = None


@dataclass(kw_only=True)
class FileFigures:
    """Figures of one file.

    Args:
        file: The file, as it was named.
        held_out: Whether it is for judging, not for learning.
        rows: Rows that are there, bad ones included.
        forms: Good rows by their form.
        rungs: Good rows by what their calls of tools ask of a model.
    """

    file: str
    held_out: bool
    rows: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    rungs: Counter[Rung] = field(default_factory=Counter)
    lengths: "array[int]" = field(default_factory=lambda: array("L"))
    token_counts: "array[int]" = field(default_factory=lambda: array("L"))

    @property
    def good(self) -> int:
        """Rows that can be learned from."""
        return sum(self.forms.values())

    @property
    def characters(self) -> Spread | None:
        """Characters of the good rows."""
        return spread_of(self.lengths)

    @property
    def tokens(self) -> Spread | None:
        """Tokens of the good rows, where they were counted."""
        return spread_of(self.token_counts)


class DataCheck:
    """Checks files one after another; held-out ones first, so that a finding names the row that is to go.

    Args:
        seen: Where rows are remembered.
        limits: What is asked of them.
        count_tokens: Tokens of a text; None counts none.
    """

    def __init__(self, seen: Seen, limits: Limits, count_tokens: Callable[[str], int] | None = None) -> None:
        self._seen = seen
        self._limits = limits
        self._count_tokens = count_tokens
        self.files: list[FileFigures] = []

    def check(self, path: Path, *, held_out: bool = False) -> Iterator[Finding]:
        """Yield what is found in a file, and add its figures to `files`.

        Args:
            path: The file.
            held_out: It is for judging: its rows must not be learned from.

        Raises:
            OSError: It cannot be read.
            ModuleNotFoundError: A library that is needed is missing.
        """
        figures = FileFigures(file=str(path), held_out=held_out)
        self.files.append(figures)
        number = len(self.files) - 1
        for line in read_lines(path):
            figures.rows += not line.ends
            for rule, level, message in self._row(line, number):
                row = line.number if not line.ends else line.number + 1
                yield Finding(rule=rule, level=level, file=figures.file, row=row, message=message)
        for level, message in _amount(figures):
            yield Finding(rule=Rule.AMOUNT, level=level, file=figures.file, row=None, message=message)

    def _row(self, line: Line, file: int) -> Iterator[tuple[Rule, Level, str]]:
        if line.problem:
            yield Rule.FORMAT, Level.ERROR, line.problem
            return
        try:
            example = read_example(line.value)
        except FormatError as error:
            yield Rule.FORMAT, Level.ERROR, str(error)
            return
        figures = self.files[file]
        figures.forms[example.form] += 1
        figures.rungs[rung_of(example.messages)] += 1
        for message in role_problems(example):
            yield Rule.ROLES, Level.WARNING, message
        for message in call_problems(example.messages, example.tools):
            yield Rule.TOOL_CALLS, Level.ERROR, message
        yield from self._lengths(example, figures)
        yield from self._copies(example, file, line.number)

    def _lengths(self, example: Example, figures: FileFigures) -> Iterator[tuple[Rule, Level, str]]:
        text = text_of([*example.messages, *example.rejected])
        figures.lengths.append(len(text))
        found = [("characters", len(text), self._limits.longest)]
        if self._count_tokens is not None:
            figures.token_counts.append(self._count_tokens(text))
            found.append(("tokens", figures.token_counts[-1], self._limits.longest_tokens))
        for unit, count, most in found:
            if most is not None and count > most:
                message = f"has {count} {unit}, more than {most}; shorten it, split it, or drop it"
                yield Rule.LENGTH, Level.WARNING, message

    def _copies(self, example: Example, file: int, number: int) -> Iterator[tuple[Rule, Level, str]]:
        row = self._seen.add(file, number)
        held_out = self.files[file].held_out
        leak = None if held_out else self._leak(example)
        if leak:
            yield Rule.LEAKAGE, Level.ERROR, leak
        first = self._seen.find(_SAME, example.digest)
        if first is not None:
            if not leak:
                yield Rule.DUPLICATE, Level.WARNING, f"is the same as {self._name(first.file, first.number)}; remove it"
            return
        self._seen.mark(_SAME, example.digest, row)
        if held_out:
            self._seen.mark(_QUESTION, example.question, row)
            if example.task:
                self._seen.mark(_TASK, example.task.encode(errors="surrogatepass"), row)
        if self._limits.alike is not None and not leak:
            yield from self._near(example, file, row, self._limits.alike)

    def _leak(self, example: Example) -> str:
        """Return how a row gives away one that is held out; nothing where it does not."""
        ways = [(_SAME, example.digest, "is"), (_QUESTION, example.question, "asks what is asked in")]
        if example.task:
            task = example.task.encode(errors="surrogatepass")
            ways.append((_TASK, task, f"is of task {example.task!r} as is"))
        for kind, key, how in ways:
            place = self._seen.find(kind, key)
            if place is not None and self.files[place.file].held_out:
                return f"{how} {self._name(place.file, place.number)}, which is held out; remove one of the two"
        return ""

    def _near(self, example: Example, file: int, row: int, least: float) -> Iterator[tuple[Rule, Level, str]]:
        said = [message for message in [*example.messages, *example.rejected] if message["role"] != "system"]
        signature = signature_of(text_of(said))
        alike = self._seen.find_alike(signature, least)
        if not alike:
            self._seen.remember(signature, row)
            return
        leaks = [place for place in alike if self.files[place.file].held_out and not self.files[file].held_out]
        place = (leaks or alike)[0]
        message = f"is {place.alike:.2f} alike to {self._name(place.file, place.number)}"
        if leaks:
            yield Rule.LEAKAGE, Level.WARNING, f"{message}, which is held out; look whether it gives it away"
        else:
            yield Rule.NEAR_DUPLICATE, Level.WARNING, f"{message}; keep one of the two"

    def _name(self, file: int, number: int) -> str:
        return f"row {number} of {self.files[file].file}"


def role_problems(example: Example) -> Iterator[str]:
    """Yield what is odd about the order of roles, with the fix."""
    roles = [message["role"] for message in example.messages]
    late = next((number for number, role in enumerate(roles) if number and role == "system"), None)
    if late is not None:
        yield f"message {late} of `system` is not the first; many chat templates refuse it or leave it out"
    if roles[-1] != "assistant":
        yield f"ends with a message of `{roles[-1]}`, which is never learned; add the answer, or cut it off"
    twice = next((n for n, pair in enumerate(pairwise(roles), 1) if pair == ("user", "user")), None)
    if twice is not None:
        yield f"message {twice} is the second of `user` in a row; many chat templates refuse that, so join the two"


def _amount(figures: FileFigures) -> Iterator[tuple[Level, str]]:
    if not figures.rows:
        yield Level.ERROR, 'has no rows; write one {"messages": [...]} object a line'
        return
    if figures.held_out:
        return
    calling = figures.good - figures.rungs[Rung.NONE]
    steps = sum(figures.rungs[rung] for rung in _SEVERAL_STEPS)
    what, enough = list(ENOUGH_ROWS.items())[2 if 2 * steps > figures.good else 1 if 2 * calling > figures.good else 0]
    enough = max(enough, LEAST_ROWS)
    if figures.good < enough:
        yield Level.ADVICE, f"has {figures.good} rows; to learn {what}, {enough} or more are needed as a rule"
