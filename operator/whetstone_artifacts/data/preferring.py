"""Pairs of a better and a worse answer from examples that people, or a rule, called good or bad. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from whetstone_artifacts.data.pairs import fork
from whetstone_artifacts.data.reading import Read

LABEL: Final = "label"
_LABELS: Final = {"accepted": True, "rejected": False}


@dataclass(kw_only=True)
class Answers:
    """Examples that answer one question.

    Args:
        accepted: The good ones.
        rejected: The bad ones.
    """

    accepted: list[Read] = field(default_factory=list)
    rejected: list[Read] = field(default_factory=list)


@dataclass(kw_only=True)
class Left:
    """What became no pair.

    Args:
        unjudged: Rows that nobody called good or bad.
        alone: Judged rows whose question has none of the other side, or no more of it.
        same: Pairs whose sides say the same, or of which one only stops earlier.
    """

    unjudged: int = 0
    alone: int = 0
    same: int = 0


def pairs_of(rows: Iterable[Read], verdicts: Mapping[tuple[str, int], bool], left: Left) -> Iterator[dict[str, Any]]:
    """Yield pairs: of each question, the first good answer with the first bad one, the second with the second.

    Two answers are to one question where all before the assistant's first turn is the same, and the same tools are
    offered.

    Args:
        rows: Conversations; those that are judged are held in memory.
        verdicts: Whether the row of a file is good, by the file's name and the row; they come before the row's `label`.
        left: Takes the count of what became no pair.
    """
    questions: dict[str, Answers] = defaultdict(Answers)
    for read in rows:
        good = verdicts.get((read.file, read.number), _LABELS.get(str(read.value.get(LABEL))))
        if good is None or read.example.is_pair:
            left.unjudged += 1
            continue
        answers = questions[repr((read.example.asked, read.example.tools))]
        (answers.accepted if good else answers.rejected).append(read)
    for answers in questions.values():
        left.alone += abs(len(answers.accepted) - len(answers.rejected))
        for better, worse in zip(answers.accepted, answers.rejected, strict=False):
            pair = _pair(better, worse)
            if pair is None:
                left.same += 1
            else:
                yield pair


def _pair(better: Read, worse: Read) -> dict[str, Any] | None:
    good, bad = better.example.messages, worse.example.messages
    start = fork(good, bad)
    if start is None:
        return None
    tools = {"tools": better.example.tools} if better.example.tools else {}
    task = {"task": better.example.task} if better.example.task else {}
    return {"prompt": good[:start], "chosen": good[start:], "rejected": bad[start:], **tools, **task}
