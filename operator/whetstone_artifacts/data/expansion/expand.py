"""An expansion from its seeds to its files.

A folder holds all of it: `log.jsonl` with every request, and what each run writes anew, `rows.jsonl` and
`dropped.jsonl`.
Variants go in waves: questions at a time, then those that are new are answered at a time. What is kept depends on the
replies and the order of the seeds alone, never on who answers first.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import batched
from pathlib import Path
from typing import Any, Final

from whetstone_api.digests import canonical_digest

from whetstone_artifacts.data.example import Example
from whetstone_artifacts.data.expansion.course import Answered, Course, DroppedError, Plan, Question
from whetstone_artifacts.data.expansion.ledger import BudgetSpentError
from whetstone_artifacts.data.expansion.prompts import Seed
from whetstone_artifacts.data.expansion.teacher import NoReplyError, TeacherRefusedError
from whetstone_artifacts.data.ladder import rung_of
from whetstone_artifacts.data.reading import read_all
from whetstone_artifacts.data.seen import Seen, signature_of
from whetstone_artifacts.replacing import replacing

LOG_FILE: Final = "log.jsonl"
ROWS_FILE: Final = "rows.jsonl"
DROPPED_FILE: Final = "dropped.jsonl"
SHOWN_SEEDS: Final = 2
"""Other seeds that a request for a question shows."""
_GIVEN_UP: Final = 8
"""Variants in a row that the teacher did not answer for."""
_QUESTION: Final = 0
SEED, HELD_OUT, NEW = range(3)
"""Where a question was seen."""


@dataclass(kw_only=True)
class Expansion:
    """What came out so far.

    Args:
        planned: Variants in all.
        rows: New rows.
        dropped: What became none, with the rule and the reason.
        stopped: Why it ended before the last variant; empty where it did not.
        failed: Whether that is to be mended, and not a budget that is used up.
    """

    planned: int
    done: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""
    failed: bool = False

    @property
    def rules(self) -> Counter[str]:
        """Dropped variants by the rule that they broke."""
        return Counter(one["rule"] for one in self.dropped)


def read_seeds(paths: Sequence[Path]) -> list[Seed]:
    """Return the human rows of files, each once; pairs are no seeds.

    Raises:
        ArtifactError: A row is wrong.
        OSError: A file cannot be read.
    """
    found: dict[bytes, Seed] = {}
    for read in read_all(paths):
        if not read.example.is_pair:
            found.setdefault(read.example.digest, Seed(file=read.file, number=read.number, example=read.example))
    return list(found.values())


def plans_of(seeds: Sequence[Seed], variants: int) -> list[Plan]:
    """Return what is to be made, first one variant of each seed, so that a budget that ends early is spread.

    Args:
        seeds: The human rows.
        variants: New rows of each.
    """
    shown = {seed.example.digest: _others(seed, seeds) for seed in seeds}
    return [
        Plan(seed=seed, others=shown[seed.example.digest], number=number)
        for number in range(1, variants + 1)
        for seed in seeds
    ]


def _others(seed: Seed, seeds: Sequence[Seed]) -> list[Seed]:
    """Return seeds to show beside one: the same ones each time, others for each seed."""

    def order(one: Seed) -> str:
        return canonical_digest([seed.example.digest.hex(), one.example.digest.hex()])

    return sorted((one for one in seeds if one is not seed), key=order)[:SHOWN_SEEDS]


class Novelty:
    """Whether a question is new: neither a seed's, nor a held-out one, nor one that was made before.

    Args:
        seen: An empty store.
        alike: Likeness from which two questions are the same; None looks for none.
    """

    def __init__(self, seen: Seen, alike: float | None) -> None:
        self._seen = seen
        self._alike = alike

    def know(self, text: str, kind: int, number: int) -> None:
        """Take a question that is there.

        Args:
            text: The question.
            kind: `SEED`, `HELD_OUT` or `NEW`.
            number: Its row, or variant.
        """
        row = self._seen.add(kind, number)
        self._seen.mark(_QUESTION, _digest(text), row)
        if self._alike is not None:
            self._seen.remember(signature_of(text), row)

    def admit(self, text: str, number: int) -> None:
        """Take a new question.

        Raises:
            DroppedError: It is not new.
        """
        same = self._seen.find(_QUESTION, _digest(text))
        if same is not None:
            raise DroppedError(_RULES[same.file], f"asks what {_WHERE[same.file]} {same.number} asks", text)
        alike = [] if self._alike is None else self._seen.find_alike(signature_of(text), self._alike)
        if alike:
            found = alike[0]
            told = f"is {found.alike:.2f} alike to what {_WHERE[found.file]} {found.number} asks"
            raise DroppedError(_RULES[found.file], told, text)
        self.know(text, NEW, number)


_RULES: Final = {SEED: "duplicate", HELD_OUT: "leakage", NEW: "duplicate"}
_WHERE: Final = {SEED: "seed", HELD_OUT: "held-out row", NEW: "variant"}


def expand(
    course: Course, plans: Sequence[Plan], novelty: Novelty, *, at_once: int, told: Callable[[Expansion], None]
) -> Expansion:
    """Make new rows, and return what came out; a teacher or a budget that ends leaves what there is.

    Args:
        course: Makes questions and answers.
        plans: What is to be made.
        novelty: Knows the questions that are there.
        at_once: Requests at a time.
        told: Hears how far it is.
    """
    expansion, silent = Expansion(planned=len(plans)), 0
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for wave in batched(enumerate(plans, start=1), at_once):
                asked = [(number, plan, pool.submit(course.question, plan)) for number, plan in wave]
                waiting = list(_admitted(asked, novelty, expansion))
                answers = [(question.plan, pool.submit(course.answer, question)) for question in waiting]
                for plan, answer in answers:
                    _settle(plan, answer, expansion)
                expansion.done += len(asked)
                told(expansion)
                silent = _silent(expansion, [plan for _, plan, _ in asked], silent)
                if expansion.stopped:
                    break
        except KeyboardInterrupt:
            course.stopping.set()
            expansion.stopped, expansion.failed = "it was interrupted", True
    return expansion


def _admitted(
    asked: Sequence[tuple[int, Plan, "Future[Question]"]], novelty: Novelty, expansion: Expansion
) -> Iterator[Question]:
    for number, plan, future in asked:
        with _Dropping(plan, expansion):
            question = future.result()
            novelty.admit(question.text, number)
            yield question


def _settle(plan: Plan, future: "Future[Answered]", expansion: Expansion) -> None:
    with _Dropping(plan, expansion):
        expansion.rows.append(_row(future.result()))


class _Dropping:
    """Notes why a variant became no row, and what ends the expansion."""

    def __init__(self, plan: Plan, expansion: Expansion) -> None:
        self._plan = plan
        self._expansion = expansion

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        seed, expansion = self._plan.seed, self._expansion
        where = {"variant": self._plan.name, "seed": f"{seed.file}, row {seed.number}"}
        if isinstance(error, DroppedError):
            expansion.dropped.append({**where, "rule": error.rule, "message": error.message, "text": error.text})
        elif isinstance(error, NoReplyError):
            expansion.dropped.append({**where, "rule": "no-reply", "message": str(error)})
        elif isinstance(error, BudgetSpentError):
            expansion.dropped.append({**where, "rule": "budget", "message": "the budget was used up"})
            expansion.stopped = "the budget is used up; raise it and run again to go on"
        elif isinstance(error, TeacherRefusedError):
            expansion.stopped, expansion.failed = str(error), True
        else:
            return False
        return True


def _silent(expansion: Expansion, wave: Sequence[Plan], before: int) -> int:
    """Return how many variants in a row had no reply, and stop after too many."""
    unanswered = {one["variant"]: one["message"] for one in expansion.dropped if one["rule"] == "no-reply"}
    for plan in wave:
        before = before + 1 if plan.name in unanswered else 0
        if before >= _GIVEN_UP and not expansion.stopped:
            expansion.stopped = f"the teacher did not answer for {before} variants in a row: {unanswered[plan.name]}"
            expansion.failed = True
    return before


def _row(answered: Answered) -> dict[str, Any]:
    question, example = answered.question, answered.answer.example
    assert example is not None
    seed = question.plan.seed
    return {
        "messages": example.messages,
        **({"tools": example.tools} if example.tools else {}),
        "task": seed.example.task or f"seed-{seed.example.digest.hex()[:12]}",
        "tags": [rung_of(example.messages).value],
        "expanded": {
            "variant": question.plan.name,
            "seed": f"{seed.file}, row {seed.number}",
            "evolved": question.evolved,
            "critiques": answered.critiques,
            "revisions": answered.revisions,
        },
    }


def write(folder: Path, expansion: Expansion) -> None:
    """Write what came out in the place of what an earlier run wrote.

    Raises:
        OSError: It cannot be written.
    """
    for name, rows in ((ROWS_FILE, expansion.rows), (DROPPED_FILE, expansion.dropped)):
        with replacing(folder / name) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def question_of(example: Example) -> str:
    """Return what a row asks."""
    return Seed(file="", number=0, example=example).question


def _digest(text: str) -> bytes:
    return hashlib.blake2b(" ".join(text.lower().split()).encode(errors="surrogatepass"), digest_size=16).digest()
