"""Branches and tags of a hub become commits once, so that every pod fetches the same files, today and later."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.modelserver import ModelServer, ResolvedSource
from whetstone_api.source import PinnedSource, Scheme, is_commit, split_hub
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.stores import resolve_revision

from whetstone_operator.controllers.references import require_secret
from whetstone_operator.runtime.outcome import Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

LOOK_AGAIN_SECONDS = 30.0
"""Pause before a hub that did not answer, or knew no such revision, is asked again."""
TOKEN_KEY = "HF_TOKEN"  # noqa: S105 - a key's name, not a secret
ENDPOINT_KEY = "HF_ENDPOINT"


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What a place of the spec stands for.

    Args:
        uri: The place at its commit; None while that is not known.
        reason: Why it is not known.
        message: The same for people; names the field.
        after_seconds: When to look again; None where only a change of the spec helps.
    """

    uri: str | None = None
    reason: Reason | None = None
    message: str = ""
    after_seconds: float | None = None


class Pins:
    """Resolves the places of one server; what was resolved before stays.

    Args:
        recorded: What the status recorded.
    """

    def __init__(self, recorded: Sequence[ResolvedSource] | None) -> None:
        self._recorded = {(entry.uri, entry.digest): entry for entry in recorded or []}
        self._used: dict[tuple[str, str | None], ResolvedSource] = {}

    @property
    def entries(self) -> list[ResolvedSource]:
        """What the status should record: the places that the spec names now."""
        return list(self._used.values())

    async def resolve(self, work: Work[ModelServer], source: PinnedSource, *, field: str) -> Pin:
        """Return what a place stands for, asking the hub at most once a place.

        Args:
            work: The server.
            source: The place.
            field: Where the user named it.
        """
        if source.scheme is not Scheme.HUB or is_commit(split_hub(source.uri)[1]):
            return Pin(uri=source.uri)
        key = (source.uri, source.digest)
        entry = self._used.get(key) or self._recorded.get(key)
        if entry is None:
            answer = await self._ask(work, source, field=field)
            if answer.uri is None:
                return answer
            entry = ResolvedSource(uri=source.uri, digest=source.digest, resolved=answer.uri)
        self._used[key] = entry
        return Pin(uri=entry.resolved)

    async def _ask(self, work: Work[ModelServer], source: PinnedSource, *, field: str) -> Pin:
        values = {ENDPOINT_KEY: work.context.settings.hub_endpoint}
        if source.secret_ref is not None:
            found = await find_secret(work, source, field=field)
            if isinstance(found, Pin):
                return found
            if ENDPOINT_KEY in found:
                # The operator must not be sent to addresses of a user's choice.
                message = (
                    f"{field}.uri: {source.uri} names a branch or tag of the hub in Secret {source.secret_ref.name};"
                    " name the commit (40 hex digits), because only pods may ask that hub"
                )
                return Pin(reason=Reason.INVALID_SPEC, message=message)
            if TOKEN_KEY in found:
                values[TOKEN_KEY] = found[TOKEN_KEY]
        try:
            uri = await asyncio.to_thread(resolve_revision, source.uri, Credentials(values=values))
        except ArtifactError as error:
            return Pin(reason=error.reason, message=f"{field}.{error.message}"[:1000], after_seconds=LOOK_AGAIN_SECONDS)
        return Pin(uri=uri)


async def pin_model(work: Work[ModelServer], server: ModelServer, pins: Pins) -> ModelServer:
    """Return the server with its base model pinned.

    Args:
        work: The server's reconcile.
        server: The server as its spec says.
        pins: Resolves branches and tags.

    Raises:
        Waiting: The hub does not know or answer, or a Secret is missing.
        Stalled: Only a change of the spec helps.
    """
    field, source = "spec.model.source", server.spec.model.place
    pin = await pins.resolve(work, source, field=field)
    if pin.reason is None and source.secret_ref is not None:
        # A pod without the Secret would hang without a word.
        found = await find_secret(work, source, field=field)
        pin = found if isinstance(found, Pin) else pin
    if pin.reason is not None and pin.after_seconds is None:
        raise Stalled(pin.reason, pin.message)
    if pin.reason is not None:
        raise Waiting(pin.reason, pin.message, pin.after_seconds)
    model = server.spec.model.model_copy(update={"source": source.model_copy(update={"uri": pin.uri})})
    return server.model_copy(update={"spec": server.spec.model_copy(update={"model": model})})


async def find_secret(work: Work[ModelServer], source: PinnedSource, *, field: str) -> dict[str, str] | Pin:
    """Return the decoded keys of the Secret that a place names; a Pin that says what is wrong with it.

    Args:
        work: The server.
        source: The place; it names a Secret.
        field: Where the user named it.
    """
    name = source.secret_ref.name if source.secret_ref else ""
    try:
        data = await require_secret(work, name, scheme=source.scheme, field=f"{field}.secretRef")
    except Waiting as missing:
        return Pin(reason=Reason(missing.reason), message=missing.message, after_seconds=missing.after_seconds)
    return {key: base64.b64decode(value).decode(errors="replace").strip() for key, value in data.items()}
