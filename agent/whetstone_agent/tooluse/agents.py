"""Who acts: a model behind an OpenAI-compatible endpoint, or a script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from openai import APIConnectionError, APIStatusError, OpenAI

from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.agents.usage import outgrown
from whetstone_agent.api_key import NO_KEY, without_keys
from whetstone_agent.tooluse.conversation import Conversation, Turn
from whetstone_agent.tooluse.outcomes import End

_RETRIES: Final = 3
_REQUEST_SECONDS: Final = 600.0


REFUSED: Final = frozenset({401, 403, 404})
"""Wrong key or wrong name: no other episode would fare better."""


class ContextOutgrownError(Exception):
    """The conversation no longer fits the model's context: the model's own doing."""


class UsedUpError(Exception):
    """What the agent may use in an episode is used up: its own end.

    Args:
        end: Which limit it was.
    """

    def __init__(self, end: End) -> None:
        super().__init__(str(end))
        self.end = end


class ModelFailedError(Exception):
    """The model's server does not answer, or refuses: no doing of the model's."""


class Agent(Protocol):
    """Says what to do next."""

    def act(self, conversation: Conversation) -> Turn:
        """Return the next turn.

        Raises:
            ContextOutgrownError: The conversation is too long.
            UsedUpError: The agent has used up what it may.
            ModelFailedError: Nobody answers.
            ModelRefusedError: The server refuses the key, or knows no such model; this ends a run.
        """


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """How a model is asked.

    Args:
        url: Base URL of the API, ending in `/v1`.
        model: Name of the model, of an adapter or of an alias.
        temperature: Sampling temperature.
        top_p: Share of the probability that is sampled from.
        max_tokens: Tokens of one reply at most.
        seed: Seed of the sampling.
    """

    url: str
    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0


class ModelAgent:
    """A model; its server knows the chat template. Threads may share it.

    Args:
        settings: How it is asked.
        api_key: The server's key.
        retries: How often a call is tried again that failed by the server's doing.
        seconds_left: Says how long the next call may take; ten minutes at most.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        api_key: str = NO_KEY,
        retries: int = _RETRIES,
        seconds_left: Callable[[], float] = lambda: _REQUEST_SECONDS,
    ) -> None:
        self._settings = settings
        self._seconds_left = seconds_left
        self._client = OpenAI(base_url=settings.url, api_key=api_key, max_retries=retries, timeout=_REQUEST_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def act(self, conversation: Conversation) -> Turn:
        """Ask the model."""
        settings = self._settings
        offered: dict[str, Any] = {"tools": conversation.tools} if conversation.tools else {}
        try:
            reply = self._client.chat.completions.create(
                model=settings.model,
                messages=conversation.messages,  # type: ignore[arg-type]
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_tokens,
                seed=settings.seed,
                timeout=min(_REQUEST_SECONDS, self._seconds_left()),
                **offered,
            )
        except APIStatusError as error:
            if outgrown(error.status_code, error.response.text):
                raise ContextOutgrownError(error.message) from error
            trouble = f"{settings.url} answers {error.status_code}: {without_keys(error.message)}"
            if error.status_code in REFUSED:
                raise ModelRefusedError(trouble) from error
            raise ModelFailedError(trouble) from error
        except APIConnectionError as error:
            raise ModelFailedError(f"{settings.url} does not answer: {error.__cause__ or error}") from error
        choice = reply.choices[0]
        said = choice.message.model_dump(exclude_none=True)
        action, message = conversation.read(said, complete=choice.finish_reason != "length")
        used = reply.usage
        return Turn(
            action=action,
            message=message,
            prompt_tokens=used.prompt_tokens if used else 0,
            completion_tokens=used.completion_tokens if used else 0,
        )


class ScriptedAgent:
    """Says what a function of the conversation returns, as a model would: for tests, and to try a set without a model.

    Args:
        reply: Returns a reply's message, in OpenAI's form.
    """

    def __init__(self, reply: Callable[[Conversation], dict[str, Any]]) -> None:
        self._reply = reply

    def act(self, conversation: Conversation) -> Turn:
        """Ask the function."""
        action, message = conversation.read(self._reply(conversation), complete=True)
        return Turn(action=action, message=message)


def saying(texts: Sequence[str]) -> Callable[[Conversation], dict[str, Any]]:
    """Return a script that says texts one after the other, the last one for ever."""

    def reply(conversation: Conversation) -> dict[str, Any]:
        said = sum(message["role"] == "assistant" for message in conversation.messages)
        return {"role": "assistant", "content": texts[min(said, len(texts) - 1)]}

    return reply
