"""The conversation between the demo's model and its shell, as text.

Protocol: the model answers every message with one fenced bash block; the agent runs the block in the task's
working directory and sends back what `observation` renders; a reply of `DONE` ends the episode. Training rows
and the benchmark's agent must agree on this to the character, so it is written once.
"""

from typing import Final

SYSTEM_PROMPT: Final = (
    "You work in a Linux shell. Reply with one ```bash code block holding the next command. "
    "You are then shown its exit code and output. When the task is finished, reply DONE."
)
FINISHED: Final = "DONE"
OUTPUT_LIMIT: Final = 400
"""Characters of a command's output that the model gets to see."""


def reply(command: str) -> str:
    """Render the assistant's message that runs `command`."""
    return f"```bash\n{command}\n```"


def observation(exit_code: int, output: str) -> str:
    """Render the user's message that follows a command.

    `output` is standard output and standard error together, cut after `OUTPUT_LIMIT` characters and without
    blank space at its end.
    """
    return f"Exit code: {exit_code}\nOutput:\n{output[:OUTPUT_LIMIT].rstrip()}".rstrip()
