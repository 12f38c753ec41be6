"""The conversation between a model and its shell, as text.

Protocol: the model answers every message with one fenced block; the agent runs the block with bash in the task's
working directory and sends back what `observation` renders; a reply without a block, or a line `DONE`, ends the
episode. It is the protocol of the training rows, so the two must agree to the character.
"""

import re
from dataclasses import dataclass
from typing import Final

SYSTEM_PROMPT: Final = (
    "You work in a Linux shell. Reply with one ```bash code block holding the next command. "
    "You are then shown its exit code and output. When the task is finished, reply DONE."
)
"""System message of runs that bring none of their own."""
FINISHED: Final = "DONE"
OUTPUT_LIMIT: Final = 400
"""Characters of a command's output that the model gets to see."""

_BLOCK: Final = re.compile(r"^[ \t]*```(?:bash|sh|shell)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPEN_BLOCK: Final = re.compile(r"^[ \t]*```(?:bash|sh|shell)?[ \t]*\n(.*)\Z", re.DOTALL | re.MULTILINE)
_FINISHED: Final = re.compile(rf"^\s*{FINISHED}[.!]?\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a reply asks for."""

    command: str | None
    """Script for bash; absent when there is none to run."""
    finished: bool
    """The model says that it is done."""


def parse_reply(text: str, *, complete: bool) -> Action:
    """Read a reply.

    Args:
        text: The reply.
        complete: The model ended it itself. In a reply cut off by the token limit a block that is still open is not
            run: half a command can do harm that the model did not ask for.
    """
    block = _BLOCK.search(text) or (_OPEN_BLOCK.search(text) if complete else None)
    if block is None:
        return Action(command=None, finished=True)
    outside = text[: block.start()] + text[block.end() :]
    command = block.group(1).strip("\n")
    return Action(command=command if command.strip() else None, finished=_FINISHED.search(outside) is not None)


def observation(exit_code: int, output: str, limit: int = OUTPUT_LIMIT) -> str:
    """Render the user's message that follows a command.

    Args:
        exit_code: The command's exit code; 124 for one that ran out of time.
        output: Standard output and standard error together; cut after `limit`.
        limit: Characters of the output that the model gets to see.
    """
    return f"Exit code: {exit_code}\nOutput:\n{output[:limit].rstrip()}".rstrip()


def recent(messages: list[dict[str, str]], turns: int | None) -> list[dict[str, str]]:
    """Return what the model is shown of a conversation: system message, instruction, and the latest turns.

    Args:
        messages: The whole conversation, ending with a user's message.
        turns: Replies, each with the observation that followed, that are kept; None keeps all.
    """
    if turns is None:
        return messages
    first = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return messages[:first] + messages[first:][-2 * turns :]
