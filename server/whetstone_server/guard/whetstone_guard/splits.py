"""Which target of an alias with several answers a request."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .asgi import Headers, Refused, header

SESSION_HEADER = b"x-whetstone-session"


@dataclass(frozen=True)
class Share:
    """One target.

    Args:
        adapter: Its name in the spec, by which sessions are dealt out.
        served: Version, or base, that answers.
        weight: Its part of the requests, in proportion to the others.
    """

    adapter: str
    served: str
    weight: int

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"adapter": self.adapter, "servedName": self.served, "weight": self.weight}


def session_of(headers: Headers, request: dict[str, Any]) -> str | None:
    """Return what ties a request to earlier ones: the session's header, else OpenAI's field `user`, else None."""
    given = header(headers, SESSION_HEADER)
    if given:
        return given.decode("latin-1")
    user = request.get("user")
    return user if isinstance(user, str) and user else None


def choose(alias: str, shares: Sequence[Share], *, session: str | None, draw: Callable[[], float]) -> Share:
    """Return the target that answers.

    A session always gets the same target, from every replica and after every restart; a changed weight moves no more
    sessions than it must (weighted rendezvous hashing).

    Args:
        alias: The alias: two of them deal out the same sessions independently.
        shares: Its targets; one weight at least is above 0.
        session: What ties the request to earlier ones; None: it is dealt out at random.
        draw: Gives a random number from 0 up to, but not, 1.
    """
    able = [share for share in shares if share.weight > 0]
    if session is not None:
        return max(able, key=lambda share: (_score(alias, share, session), share.adapter))
    left = draw() * sum(share.weight for share in able)
    for share in able:
        left -= share.weight
        if left < 0:
            return share
    return able[-1]


def _score(alias: str, share: Share, session: str) -> float:
    text = "\0".join((alias, share.adapter, session)).encode("utf-8", "surrogatepass")
    # 53 bits fit a float exactly, and half a step keeps the logarithm away from 0 and infinity.
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11
    return share.weight / -math.log((number + 0.5) / 2**53)


def parse_splits(value: Any) -> dict[str, list[Share]]:
    """Read the JSON form.

    Raises:
        Refused: 400, naming the alias.
    """
    if not isinstance(value, dict):
        raise Refused(400, "splits must map aliases to targets", code="invalid_routes", param="splits")
    return {alias: _parse_shares(alias, entries) for alias, entries in value.items()}


def _parse_shares(alias: str, entries: Any) -> list[Share]:
    try:
        shares = [Share(str(one["adapter"]), str(one["servedName"]), int(one["weight"])) for one in entries]
    except (TypeError, KeyError, ValueError):
        shares = []
    if not any(share.weight > 0 for share in shares):
        message = f"splits.{alias} must list targets with adapter, servedName and weight, one of them above 0"
        raise Refused(400, message, code="invalid_routes", param="splits")
    return shares
