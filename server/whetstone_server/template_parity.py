"""Does the engine's chat template make of a conversation what the trainer's made of it?

Another template (of the server's spec, or of another revision of the tokenizer) shows an adapter text that it has never
seen. It works all the same, only worse, and nothing else tells.
"""

from itertools import zip_longest

from whetstone_api.adapter_artifact import Probe
from whetstone_api.pod_state import TemplateState

from whetstone_server.engine import Engine, EngineRefusedError


async def compare_templates(engine: Engine, base_name: str, record: Probe | None) -> TemplateState:
    """Compare the engine's rendering of recorded conversations with the trainer's.

    Args:
        engine: The engine.
        base_name: Served name of the base: all adapters share its tokenizer and template.
        record: The adapter's record; None without one.

    Raises:
        EngineUnreachableError: The engine does not answer.
    """
    if record is None or not record.templates:
        return TemplateState()
    for number, case in enumerate(record.templates, start=1):
        try:
            rendered = await engine.render(base_name, case)
        except EngineRefusedError as error:
            status = "False" if error.status < 500 else "Unknown"
            return TemplateState(status=status, message=f"the engine does not render conversation {number}: {error}")
        if rendered != case.token_ids:
            return TemplateState(status="False", message=_difference(number, rendered, case.token_ids))
    return TemplateState(status="True", message="")


def _difference(number: int, rendered: list[int], recorded: list[int]) -> str:
    pairs = enumerate(zip_longest(rendered, recorded))
    first = next(index for index, (ours, theirs) in pairs if ours != theirs)
    return (
        f"conversation {number} becomes {len(rendered)} tokens, in training {len(recorded)};"
        f" they differ from token {first} on"
    )
