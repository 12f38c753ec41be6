"""How disciplined an agent works, from its trajectories: todos, edits, phases, success, tokens. Pure.

docs/discipline.md defines each figure.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from whetstone_api.benchmark_discipline import DisciplineRules

from whetstone_artifacts.data.example import text_of
from whetstone_artifacts.data.formats import Message
from whetstone_artifacts.data.ladder import Rung, rung_of

STRATEGIC: Final = "strategic"
TACTICAL: Final = "tactical"
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One attempt at a task.

    Args:
        task: The task; empty where it is not known.
        messages: As `to_messages` returns them.
        solved: Whether it succeeded; None where it is not known.
        phase: The phase that all of it is in, where somebody said so.
        todos: How many todos it began with, where somebody said so.
    """

    task: str
    messages: list[Message]
    solved: bool | None = None
    phase: str | None = None
    todos: int | None = None


@dataclass(kw_only=True)
class Tally:
    """What is counted in a trajectory, or in several."""

    trajectories: int = 0
    todos: int = 0
    done: int = 0
    phase_calls: int = 0
    allowed_calls: int = 0
    written: int = 0
    needed: int = 0
    known: int = 0
    solved: int = 0

    def add(self, other: "Tally") -> None:
        """Take the counts of another."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a set of trajectories; None where nothing tells.

    Args:
        counts: What they are made of.
        tokens_per_task: Mean over tasks of what the assistant writes for one.
    """

    counts: Tally
    tokens_per_task: float | None

    @property
    def todo_completion(self) -> float | None:
        """Share of the todos that were marked done."""
        return _share(self.counts.done, self.counts.todos)

    @property
    def extra_tokens(self) -> float | None:
        """Tokens that edits wrote beyond the smallest ones, as a share of these."""
        return _share(max(0, self.counts.written - self.counts.needed), self.counts.needed)

    @property
    def phase_adherence(self) -> float | None:
        """Share of the calls that their phase allows."""
        return _share(self.counts.allowed_calls, self.counts.phase_calls)

    @property
    def success(self) -> float | None:
        """Share of the trajectories that succeeded."""
        return _share(self.counts.solved, self.counts.known)


def allows(rules: DisciplineRules, tool: str, phase: str) -> bool:
    """Return whether a phase may call a tool.

    Args:
        rules: Which tools mean what.
        tool: Name of the tool.
        phase: `STRATEGIC` or `TACTICAL`.
    """
    return tool not in (rules.done if phase == STRATEGIC else [*rules.finish, *rules.next_phase])


def tokens_of(text: str) -> int:
    """Count words and signs, which are a model's tokens roughly."""
    return len(_TOKEN.findall(text))


def figures_of(
    trajectories: Sequence[Trajectory], rules: DisciplineRules, count: Callable[[str], int] = tokens_of
) -> tuple[Figures, dict[Rung, Figures]]:
    """Return the figures of trajectories, and those of each rung of tool use.

    Args:
        trajectories: All.
        rules: Which tools mean what.
        count: Tokens of a text.
    """
    rungs: dict[Rung, list[Trajectory]] = defaultdict(list)
    for one in trajectories:
        rungs[rung_of(one.messages)].append(one)
    parts = {rung: _figures(rungs[rung], rules, count) for rung in Rung if rung in rungs}
    return _figures(trajectories, rules, count), parts


def token_change(
    ours: Sequence[Trajectory], baseline: Sequence[Trajectory], count: Callable[[str], int] = tokens_of
) -> float | None:
    """Return how many more tokens a task takes than in a baseline, as a share: -0.2 is a fifth less.

    Args:
        ours: The trajectories.
        baseline: Those that they are set beside.
        count: Tokens of a text.

    Returns:
        Over the tasks that both have, in which each counts the same; None where there are none.
    """
    here, there = _tokens_by_task(ours, count), _tokens_by_task(baseline, count)
    both = [task for task in here if task in there]
    before = sum(there[task] for task in both)
    return sum(here[task] for task in both) / before - 1 if before else None


def tally(one: Trajectory, rules: DisciplineRules, count: Callable[[str], int] = tokens_of) -> Tally:
    """Count what one trajectory did.

    Args:
        one: The trajectory.
        rules: Which tools mean what.
        count: Tokens of a text.
    """
    found = Tally(trajectories=1, known=int(one.solved is not None), solved=int(one.solved is True))
    calls = [call["function"] for message in one.messages for call in message.get("tool_calls", ())]
    planned = any(call["name"] in rules.next_phase for call in calls)
    phase = one.phase or (STRATEGIC if planned else None)
    opened, left = one.todos or 0, one.todos or 0
    for call in calls:
        name = call["name"]
        if phase is not None:
            found.phase_calls += 1
            found.allowed_calls += allows(rules, name, phase)
        if name in rules.next_phase:
            count_of_todos = _todos(call["arguments"])
            opened, left = opened + count_of_todos, left + count_of_todos
            phase = one.phase or TACTICAL
        elif name in rules.done:
            found.done += 1
            left -= 1
            if planned and left <= 0:
                phase = one.phase or STRATEGIC
    if one.solved is False:
        found.done = 0
    else:
        found.todos = opened or 1
        found.done = min(found.done, found.todos)
    found.written, found.needed = _edits(one.messages, rules, count)
    return found


def _figures(trajectories: Sequence[Trajectory], rules: DisciplineRules, count: Callable[[str], int]) -> Figures:
    counts = Tally()
    for one in trajectories:
        counts.add(tally(one, rules, count))
    tokens = _tokens_by_task(trajectories, count)
    return Figures(counts=counts, tokens_per_task=sum(tokens.values()) / len(tokens) if tokens else None)


def _tokens_by_task(trajectories: Sequence[Trajectory], count: Callable[[str], int]) -> dict[str, float]:
    """Return the mean tokens of each task; a trajectory without one is a task of its own."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(trajectories):
        said = text_of(message for message in one.messages if message["role"] == "assistant")
        found[one.task or f"\0{number}"].append(count(said))
    return {task: sum(tokens) / len(tokens) for task, tokens in found.items()}


def _todos(arguments: Mapping[str, Any]) -> int:
    return next((len(value) for value in arguments.values() if isinstance(value, list)), 1)


def _edits(messages: Sequence[Message], rules: DisciplineRules, count: Callable[[str], int]) -> tuple[int, int]:
    """Return the tokens that edits wrote, and those of the smallest edits that do the same."""
    files: dict[str, str] = {}
    written = needed = 0
    for number, message in enumerate(messages):
        for index, call in enumerate(message.get("tool_calls", ())):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if (edit := rules.edits.get(name)) is not None:
                path, old, new = (str(arguments.get(key, "")) for key in (edit.path, edit.old, edit.new))
                written += count(old) + count(new)
                needed += _smallest(old, new, count)
                if old:
                    files[path] = files.get(path, "").replace(old, new, 1)
            elif (tool := rules.writes.get(name)) is not None:
                path, content = (str(arguments.get(key, "")) for key in (tool.path, tool.content))
                if files.get(path):
                    written += count(content)
                    needed += _smallest(files[path], content, count)
                files[path] = content
            elif (reading := rules.reads.get(name)) is not None:
                files[str(arguments.get(reading.path, ""))] = _result(messages, number, index, call.get("id"))
    return written, needed


def _smallest(before: str, after: str, count: Callable[[str], int]) -> int:
    """Return the tokens of the lines that a diff without context takes out and puts in."""
    old, new = before.splitlines(), after.splitlines()
    codes = SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    changed = [[*old[a:b], *new[c:d]] for tag, a, b, c, d in codes if tag != "equal"]
    return sum(count(line) for lines in changed for line in lines)


def _result(messages: Sequence[Message], turn: int, index: int, call_id: str | None) -> str:
    """Return what a call returned; nothing where nothing answers it."""
    results: list[Message] = []
    for message in messages[turn + 1 :]:
        if message["role"] != "tool":
            break
        results.append(message)
    named = [message for message in results if call_id is not None and message.get("tool_call_id") == call_id]
    found = named or results[index : index + 1]
    return str(found[0]["content"]) if found else ""


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
