"""The chat template of a ModelServer, from its spec or from the user's ConfigMap."""

from whetstone_api.chat_template import MAX_TEMPLATE_BYTES
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.references import require_config_map_key
from whetstone_operator.runtime.outcome import Stalled
from whetstone_operator.runtime.reconcile import Work

POLL_SECONDS = 30.0
"""Users' ConfigMaps are not watched: a change is found after this time at the latest."""
FIELD = "spec.engine.chatTemplate"


async def read_chat_template(work: Work[ModelServer]) -> str | None:
    """Return the template that the engines should have; None: the model's own.

    Raises:
        Interrupt: There is none where the spec says, or it cannot be used.
    """
    given = work.resource.spec.engine.chat_template
    if given is None:
        return None
    if given.config_map_ref is None:
        return _usable(given.inline or "", where=f"{FIELD}.inline")
    work.look_again(POLL_SECONDS)
    ref, where = given.config_map_ref, f"{FIELD}.configMapRef"
    text = await require_config_map_key(work, name=ref.name, key=ref.key, field=where, binary=False)
    return _usable(text, where=f"{where}.key: key {ref.key} of ConfigMap {ref.name}")


def _usable(text: str, *, where: str) -> str:
    size = len(text.encode())
    if not text.strip():
        raise Stalled(Reason.INVALID_SPEC, f"{where} is empty; write the template there, or leave chatTemplate out")
    if size > MAX_TEMPLATE_BYTES:
        message = f"{where} has {size} bytes, more than the {MAX_TEMPLATE_BYTES} that a pod can carry; shorten it"
        raise Stalled(Reason.INVALID_SPEC, message)
    return text
