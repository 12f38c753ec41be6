"""Which served version answers to which name."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from .asgi import Refused
from .sampling import parse_sampling
from .splits import Share, choose, parse_splits


@dataclass(frozen=True)
class Routes:
    """What the guard lets through; the JSON form is `whetstone_api.pod_state.GuardRoutes`.

    Args:
        open: Whether inference requests pass at all.
        base: Served name of the base model.
        adapters: Served version by bare adapter name.
        aliases: Served version, or base, by alias with one target.
        splits: Targets by alias with several.
        sampling: Sampling for requests that leave it out, by field of the request.
        versions: Versions that clients may name themselves.
        pending: Names whose version this pod does not hold yet.
    """

    open: bool = False
    base: str = ""
    adapters: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    splits: dict[str, list[Share]] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)

    def names(self) -> dict[str, str]:
        """Return the served name by each name that a client may use; of several targets, that of the heaviest."""
        heaviest = {alias: max(shares, key=lambda one: one.weight).served for alias, shares in self.splits.items()}
        own = {name: name for name in (self.base, *self.versions) if name}
        return {**own, **self.adapters, **self.aliases, **heaviest}

    def resolve(self, requested: Any, *, session: str | None = None) -> str:
        """Return the served name that answers.

        Args:
            requested: The request's `model`; None means the base, as in the engine.
            session: What ties the request to one target of an alias with several; None: any of them.

        Raises:
            Refused: 400 for a value that is no name, 503 for a name that this pod will hold soon, 404 for an unknown
                one.
        """
        if requested is None:
            return self.base
        if not isinstance(requested, str):
            raise Refused(400, "model must be a string", code="invalid_model", param="model")
        if requested in self.splits:
            served = choose(requested, self.splits[requested], session=session, draw=random.random).served
            if served == self.base or served in self.versions:
                return served
            raise _not_yet(requested)
        names = self.names()
        if requested in names:
            return names[requested]
        if requested in self.pending:
            raise _not_yet(requested)
        known = ", ".join(sorted(names))
        raise Refused(
            404, f"the model {requested!r} does not exist; known: {known}", code="model_not_found", param="model"
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        splits = {alias: [share.to_wire() for share in shares] for alias, shares in self.splits.items()}
        return {**vars(self), "splits": splits}


def _not_yet(name: str) -> Refused:
    return Refused(503, f"{name!r} is not loaded in this replica yet; try again", code="model_pending", retry_after=1)


def parse_routes(body: bytes) -> Routes:
    """Read the JSON form.

    Raises:
        Refused: 400, naming the field.
    """
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict) or not isinstance(value.get("open"), bool) or not isinstance(value.get("base"), str):
        raise Refused(400, "routes need open (true or false) and base (a name)", code="invalid_routes")
    return Routes(
        open=value["open"],
        base=value["base"],
        adapters=_names_by_name(value, "adapters"),
        aliases=_names_by_name(value, "aliases"),
        splits=parse_splits(value.get("splits") or {}),
        sampling=parse_sampling(value.get("sampling") or {}),
        versions=_names(value, "versions"),
        pending=_names(value, "pending"),
    )


def _names_by_name(value: dict[str, Any], key: str) -> dict[str, str]:
    entry = value.get(key) or {}
    if not isinstance(entry, dict) or not all(isinstance(name, str) for name in entry.values()):
        raise Refused(400, f"{key} must map names to names", code="invalid_routes", param=key)
    return entry


def _names(value: dict[str, Any], key: str) -> list[str]:
    entry = value.get(key) or []
    if not isinstance(entry, list) or not all(isinstance(name, str) for name in entry):
        raise Refused(400, f"{key} must be a list of names", code="invalid_routes", param=key)
    return entry
