"""The way of one new row: a question, its rewrites, an answer, and its mending."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whetstone_artifacts.data.example import Example, read_example, text_of
from whetstone_artifacts.data.expansion import prompts
from whetstone_artifacts.data.expansion.ledger import Ledger
from whetstone_artifacts.data.expansion.prompts import OPERATIONS, Prompt, Seed
from whetstone_artifacts.data.expansion.teacher import NoReplyError, Teacher
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.tool_calls import call_problems
from whetstone_artifacts.data.validation import role_problems


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the teacher is asked.

    Args:
        model: Its name.
        temperature: Sampling temperature.
        reply_tokens: Tokens of one reply at most.
        seed: Seed of the sampling; each variant of a row adds its number.
        options: Further fields of each request; None takes one away.
    """

    model: str
    temperature: float = 0.8
    reply_tokens: int = 1024
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def body(self, prompt: Prompt, number: int) -> dict[str, Any]:
        """Return a request.

        Args:
            prompt: Its messages.
            number: Of the variant.
        """
        messages = [{**one, "content": one["content"].encode(errors="replace").decode()} for one in prompt]
        fields = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.reply_tokens,
            "seed": self.seed + number,
            **self.options,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A row that is to be made.

    Args:
        seed: The human row that it starts from.
        others: Human rows that are shown beside it.
        number: Which variant of the seed, from 1.
    """

    seed: Seed
    others: Sequence[Seed]
    number: int

    @property
    def name(self) -> str:
        """The variant, by what the seed says and not by where it stands."""
        return f"{self.seed.example.digest.hex()[:12]}-{self.number}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A new question.

    Args:
        plan: What it was made for.
        text: The question.
        evolved: How many rewrites it took.
    """

    plan: Plan
    text: str
    evolved: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, and what the validators say of it.

    Args:
        messages: As the teacher wrote them.
        example: The whole row; None where it is in no form.
        errors: What forbids to learn from it.
        warnings: What is likely not meant so.
    """

    messages: list[Any]
    example: Example | None
    errors: list[str]
    warnings: list[str]

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The lower, the better."""
        return self.example is None, len(self.errors), len(self.warnings)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with the answer that was kept.

    Args:
        question: The question.
        answer: The answer; its errors are empty.
        critiques: How often it was criticised.
        revisions: How many mended answers took its place.
    """

    question: Question
    answer: Answer
    critiques: int
    revisions: int


class DroppedError(Exception):
    """No row comes of a variant.

    Args:
        rule: What it broke, in a word.
        message: Why.
        text: What is dropped.
    """

    def __init__(self, rule: str, message: str, text: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.text = text


class Course:
    """Makes questions and answers. Threads may share it.

    Args:
        teacher: Who is asked.
        ledger: Where replies are kept.
        sampling: How it is asked.
        evolve: Rewrites of each question.
        reflect: Most rounds of critique and mending of each answer.
        longest: Most characters of a row; None for any number.
    """

    def __init__(
        self,
        teacher: Teacher,
        ledger: Ledger,
        sampling: Sampling,
        *,
        evolve: int = 1,
        reflect: int = 0,
        longest: int | None = None,
    ) -> None:
        self._teacher = teacher
        self._ledger = ledger
        self._sampling = sampling
        self._evolve = evolve
        self._reflect = reflect
        self._longest = longest
        self.stopping = threading.Event()
        """Set: nothing is asked any more."""

    def question(self, plan: Plan) -> Question:
        """Return a new question. A rewrite that is none leaves it as it was.

        Raises:
            DroppedError: There is none.
            NoReplyError: The teacher does not answer.
            TeacherRefusedError: The teacher takes no request.
            BudgetSpentError: There is no budget left.
        """
        reply = self._ask(plan, "question", prompts.ask_question(plan.seed, plan.others))
        text = None if reply is None else prompts.read_question(reply)
        if text is None:
            raise DroppedError("question", "the reply holds no question, or was cut off", reply or "")
        evolved = 0
        for number in range(1, self._evolve + 1):
            operation = OPERATIONS[(plan.number + number - 2) % len(OPERATIONS)]
            reply = self._ask(plan, f"evolve-{number}", prompts.evolve(plan.seed, text, operation))
            rewritten = None if reply is None else prompts.read_question(reply)
            if rewritten is not None and (self._longest is None or len(rewritten) <= self._longest):
                text, evolved = rewritten, evolved + 1
        return Question(plan=plan, text=text, evolved=evolved)

    def answer(self, question: Question) -> Answered:
        """Return the answer of a question; of two versions, that of which the validators find less.

        Raises:
            DroppedError: There is none that can be learned from.
            NoReplyError: The teacher does not answer.
            TeacherRefusedError: The teacher takes no request.
            BudgetSpentError: There is no budget left.
        """
        plan, seed = question.plan, question.plan.seed
        reply = self._ask(plan, "answer", prompts.ask_answer(seed, question.text))
        kept = self._judge(question, reply)
        critiques = revisions = 0
        for number in range(1, self._reflect + 1):
            if not kept.messages:
                break
            asked = prompts.criticise(seed, question.text, kept.messages)
            critique = self._ask(plan, f"critique-{number}", asked)
            critiques += 1
            if critique is None or not critique.strip() or prompts.finds_nothing(critique):
                break
            asked = prompts.revise(seed, question.text, kept.messages, critique)
            mended = self._judge(question, self._ask(plan, f"revision-{number}", asked))
            if mended.messages and mended.rank <= kept.rank:
                kept, revisions = mended, revisions + 1
        if kept.errors or kept.example is None:
            raise DroppedError("answer", "; ".join(kept.errors), reply or "")
        return Answered(question=question, answer=kept, critiques=critiques, revisions=revisions)

    def _ask(self, plan: Plan, step: str, prompt: Prompt) -> str | None:
        """Return what the teacher says, now or in an earlier run; None for a reply that was cut off."""
        body = self._sampling.body(prompt, plan.number)
        reply = self._ledger.find(plan.name, step, body)
        if reply is None:
            if self.stopping.is_set():
                raise NoReplyError("the expansion was stopped")
            held = self._ledger.reserve(body)
            try:
                reply = self._teacher.ask(body)
            except NoReplyError as error:
                self._ledger.fail(plan.name, step, body, str(error), held)
                raise
            self._ledger.record(plan.name, step, body, reply, held)
        return None if reply.finish == "length" else reply.text

    def _judge(self, question: Question, reply: str | None) -> Answer:
        seed = question.plan.seed
        messages = None if reply is None else prompts.read_answer(seed, reply)
        if messages is None:
            return Answer(messages=[], example=None, errors=["the reply is no answer, or was cut off"], warnings=[])
        asked = [{"role": "system", "content": seed.system}] if seed.system else []
        asked.append({"role": "user", "content": question.text})
        tools = {"tools": seed.example.tools} if seed.example.tools else {}
        try:
            example = read_example({"messages": [*asked, *messages], **tools})
        except FormatError as error:
            return Answer(messages=messages, example=None, errors=[str(error)], warnings=[])
        errors = list(call_problems(example.messages, example.tools))
        if example.messages[len(asked)]["role"] != "assistant":
            errors.append("the answer does not begin with the assistant's turn")
        if example.messages[-1]["role"] != "assistant":
            errors.append("the answer does not end with the assistant's turn")
        if not example.tools and any("tool_calls" in message for message in example.messages):
            errors.append("the answer calls tools, and none are offered")
        length = len(text_of(example.messages))
        if self._longest is not None and length > self._longest:
            errors.append(f"has {length} characters, more than {self._longest}")
        return Answer(messages=messages, example=example, errors=errors, warnings=list(role_problems(example)))
