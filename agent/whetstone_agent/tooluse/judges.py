"""Models that judge: whether an answer means the accepted one, an episode is hopeless, or a result tells enough.

All are asked for yes or no. What they are asked is `PROMPTS`, which a run records with its settings.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from openai import APIConnectionError, APIStatusError, OpenAI

from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.api_key import NO_KEY, without_keys
from whetstone_agent.tooluse.agents import REFUSED, ModelSettings

_RETRIES: Final = 3
_REQUEST_SECONDS: Final = 600.0
_TOKENS: Final = 512
"""Room for models that think before they say yes or no."""
_FIRST: Final = re.compile(r"^\W*(yes|no)\W*($|[.,:;!\n])", re.IGNORECASE)
_LAST: Final = re.compile(r"\b(yes|no)\W*$", re.IGNORECASE)
_THOUGHTS: Final = re.compile(r"<think>.*?</think>", re.DOTALL)


class Matter(StrEnum):
    """What is judged."""

    ANSWER = "Answer"
    """Whether an answer means one of those accepted."""
    DECLINE = "Decline"
    """Whether a reply says that the question cannot be answered."""
    HOPELESS = "Hopeless"
    """Whether an episode will lead nowhere."""
    WITNESSED = "Witnessed"
    """Whether a result tells what another call is for."""


PROMPTS: Final[dict[Matter, str]] = {
    Matter.ANSWER: """\
A question was answered. Say whether the answer means the same as one of the accepted answers.
Other words, other formats and additions that do not contradict are fine; a missing part, another value or several \
different values are not.

Question: {question}
Accepted answers: {accepted}
Answer: {answer}

Reply with yes or no and nothing else.""",
    Matter.DECLINE: """\
A question was put to an agent that did not have the tools to answer it. Say whether its reply says that it cannot \
answer, and gives no answer all the same.

Question: {question}
Reply: {answer}

Reply with yes or no and nothing else.""",
    Matter.HOPELESS: """\
An agent answers a question by calling tools, one a step. Say whether it is hopeless: it repeats itself, ignores \
errors, or does things that have nothing to do with the question, so that more steps will not help.

Question: {question}
{steps}

Is it hopeless? Reply with yes or no and nothing else.""",
    Matter.WITNESSED: """\
An agent answers a question by calling tools, one a step. The known solution makes the call below next. The agent \
called something else. Say whether the result of that tells all that the call of the solution is for, so that it need \
not be made any more.

Question: {question}
Call of the solution: {wanted}
Call of the agent: {made}
Result: {result}

Reply with yes or no and nothing else.""",
}


class JudgeUnclearError(Exception):
    """It says neither yes nor no, also when asked again."""


class JudgeFailedError(Exception):
    """Its server does not answer."""


class Judge:
    """A model that says yes or no. Threads may share it.

    Args:
        settings: How it is asked.
        api_key: The server's key.
        retries: How often a call is tried again that failed by the server's doing.
    """

    def __init__(self, settings: ModelSettings, *, api_key: str = NO_KEY, retries: int = _RETRIES) -> None:
        self.url = settings.url
        self._settings = settings
        self._client = OpenAI(base_url=settings.url, api_key=api_key, max_retries=retries, timeout=_REQUEST_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def matches(self, question: str, accepted: Sequence[str], answer: str) -> bool:
        """Say whether an answer means one of those accepted.

        Raises:
            JudgeUnclearError: It says neither yes nor no.
            JudgeFailedError: Nobody answers.
            ModelRefusedError: The server refuses the key, or knows no such model.
        """
        return self._ask(Matter.ANSWER, question=question, accepted=" | ".join(accepted), answer=answer)

    def declines(self, question: str, answer: str) -> bool:
        """Say whether a reply says that the question cannot be answered; raises as `matches` does."""
        return self._ask(Matter.DECLINE, question=question, answer=answer)

    def hopeless(self, question: str, steps: Sequence[tuple[str, str]]) -> bool:
        """Say whether an episode will lead nowhere; raises as `matches` does.

        Args:
            question: What is asked.
            steps: Actions with what they gave.
        """
        told = "\n".join(
            f"Step {number}: {action}\nResult: {result}" for number, (action, result) in enumerate(steps, 1)
        )
        return self._ask(Matter.HOPELESS, question=question, steps=told)

    def witnesses(self, question: str, *, wanted: str, made: str, result: str) -> bool:
        """Say whether a call's result tells what another call is for; raises as `matches` does.

        Args:
            question: What is asked.
            wanted: The call of the known solution.
            made: The agent's call.
            result: What that gave.
        """
        return self._ask(Matter.WITNESSED, question=question, wanted=wanted, made=made, result=result)

    def _ask(self, matter: Matter, **fields: str) -> bool:
        prompt = PROMPTS[matter].format(**fields)
        for attempt in range(2):
            verdict = yes_or_no(self._say(prompt, self._settings.seed + attempt))
            if verdict is not None:
                return verdict
        raise JudgeUnclearError(f"{self._settings.model} says neither yes nor no")

    def _say(self, prompt: str, seed: int) -> str:
        settings = self._settings
        messages: list[Any] = [{"role": "user", "content": prompt}]
        try:
            reply = self._client.chat.completions.create(
                model=settings.model,
                messages=messages,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=_TOKENS,
                seed=seed,
            )
        except APIStatusError as error:
            trouble = f"judge {settings.url} answers {error.status_code}: {without_keys(error.message)}"
            if error.status_code in REFUSED:
                raise ModelRefusedError(trouble) from error
            raise JudgeFailedError(trouble) from error
        except APIConnectionError as error:
            raise JudgeFailedError(f"judge {settings.url} does not answer: {error.__cause__ or error}") from error
        return reply.choices[0].message.content or ""


def yes_or_no(text: str) -> bool | None:
    """Return what a reply says: its first word, else its last one; None where it is neither."""
    said = _THOUGHTS.sub("", text).strip()
    found = _FIRST.search(said) or _LAST.search(said)
    return found[1].lower() == "yes" if found else None
