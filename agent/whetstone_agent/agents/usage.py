"""What the model calls of a trial took, counted from the server's own answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_OVERFLOW_WORDS: Final = ("context length", "context_length", "maximum context", "maximum input length")


@dataclass(kw_only=True)
class Usage:
    """Counts of one trial."""

    calls: int = 0
    """Model calls that were answered."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: int = 0
    """Replies that the token limit cut off."""
    overflows: int = 0
    """Calls that the server refused because the conversation had outgrown the model's context."""
    seconds: float = 0.0
    """Time in model calls, new tries included."""

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, answer: Mapping[str, Any], *, call: bool = True) -> None:
        """Count an answer of the OpenAI-compatible API, or the last piece of a streamed one.

        Args:
            answer: The answer.
            call: It is a whole answer; of a stream, only the piece that carries the usage is counted.
        """
        usage = answer.get("usage")
        if usage:
            self.prompt_tokens += int(usage.get("prompt_tokens") or 0)
            self.completion_tokens += int(usage.get("completion_tokens") or 0)
        if call or usage:
            self.calls += 1
        self.truncated += sum(choice.get("finish_reason") == "length" for choice in answer.get("choices") or [])

    def to_metadata(self) -> dict[str, Any]:
        """Return what goes into Harbor's result of the trial, under `metadata.model`."""
        return {
            "calls": self.calls,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "truncated": self.truncated,
            "overflows": self.overflows,
            "seconds": round(self.seconds, 3),
        }


def outgrown(status: int, text: str) -> bool:
    """Say whether an error answer means that the conversation no longer fits the model's context."""
    return status == 400 and any(word in text.lower() for word in _OVERFLOW_WORDS)
