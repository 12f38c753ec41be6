"""The chat template of a ModelServer, from its spec or from the user's ConfigMap."""

from whetstone_api.chat_template import MAX_TEMPLATE_BYTES
from whetstone_api.modelserver import ModelServer
from whetstone_api.schema import KeyRef
from whetstone_api.vocabulary import Reason

from whetstone_operator.kinds import CONFIG_MAP
from whetstone_operator.runtime.outcome import Interrupt, Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

POLL_SECONDS = 30.0
"""Users' ConfigMaps are not watched: a change is found after this time at the latest."""
MISSING_POLL_SECONDS = 5.0
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
    return await _read(work, given.config_map_ref)


async def _read(work: Work[ModelServer], ref: KeyRef) -> str:
    where = f"{FIELD}.configMapRef"
    found = await work.context.kube.get(CONFIG_MAP, work.namespace, ref.name)
    if found is None:
        raise _missing(f"{where}.name: ConfigMap {ref.name} does not exist in namespace {work.namespace}; create it")
    data: dict[str, str] = found.get("data") or {}
    if ref.key not in data:
        keys = ", ".join(sorted(data)) or "none"
        raise _missing(f"{where}.key: ConfigMap {ref.name} has no key {ref.key} (its keys: {keys}); add it")
    return _usable(data[ref.key], where=f"{where}.key: key {ref.key} of ConfigMap {ref.name}")


def _missing(message: str) -> Interrupt:
    return Waiting(Reason.CONFIG_MAP_NOT_FOUND, message, MISSING_POLL_SECONDS)


def _usable(text: str, *, where: str) -> str:
    size = len(text.encode())
    if not text.strip():
        raise Stalled(Reason.INVALID_SPEC, f"{where} is empty; write the template there, or leave chatTemplate out")
    if size > MAX_TEMPLATE_BYTES:
        message = f"{where} has {size} bytes, more than the {MAX_TEMPLATE_BYTES} that a pod can carry; shorten it"
        raise Stalled(Reason.INVALID_SPEC, message)
    return text
