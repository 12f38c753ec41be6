"""Who may ask for what, and how much at once: API keys and limits, from a file that the kubelet renews."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .asgi import MAX_BODY, Headers, Refused, header
from .routes import Routes

LOOK_SECONDS = 1.0
"""Shortest time between two looks at the file."""
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


@dataclass(frozen=True)
class Caller:
    """Who sends a request.

    Args:
        name: Name of the key; empty where none is needed.
        models: Names that it may ask for; None for all.
    """

    name: str = ""
    models: frozenset[str] | None = None

    def may_use(self, name: str) -> bool:
        """Return whether a name may be asked for; with an adapter's name goes each of its versions."""
        return self.models is None or name in self.models or name.rpartition("--")[0] in self.models

    def check(self, requested: Any, routes: Routes) -> None:
        """Check what a request asks for.

        Raises:
            Refused: 403 for a name that is not the caller's, 404 for one of its own that is not served: the router's
                own answer would tell it all names.
        """
        name = routes.base if requested is None else requested
        if self.models is None or not isinstance(name, str):
            return
        if not self.may_use(name):
            allowed = ", ".join(sorted(self.models)) or "none"
            message = f"the API key {self.name!r} may not call {name!r}; it may call: {allowed}"
            raise Refused(403, message, code="model_not_allowed", param="model")
        if name not in routes.names() and name not in routes.pending:
            raise Refused(404, f"the model {name!r} does not exist", code="model_not_found", param="model")


@dataclass(frozen=True)
class Policy:
    """What the file says; the JSON form is `whetstone_api.access.AccessPolicy`.

    Args:
        callers: Each with the SHA-256 of its key; None: nobody needs a key.
        request_bytes: Longest request body.
        concurrent_requests: Most inference requests at a time; None for no limit.
    """

    callers: tuple[tuple[bytes, Caller], ...] | None = None
    request_bytes: int = MAX_BODY
    concurrent_requests: int | None = None

    def authenticate(self, headers: Headers) -> Caller:
        """Return who sends a request. Every key is compared, so that the time tells nothing of them.

        Raises:
            Refused: 401 without a key that is known.
        """
        if self.callers is None:
            return Caller()
        scheme, _, key = (header(headers, b"authorization") or b"").partition(b" ")
        given = hashlib.sha256(key.strip()).digest()
        found = [caller for digest, caller in self.callers if hmac.compare_digest(digest, given)]
        if scheme.lower() != b"bearer" or not found:
            message = "no API key, or not one of this server's; send Authorization: Bearer KEY"
            raise Refused(401, message, code="invalid_api_key", headers=_CHALLENGE)
        return found[0]

    def admit(self, busy: int) -> None:
        """Check how much is going on.

        Args:
            busy: Inference requests that are being answered, the new one among them.

        Raises:
            Refused: 429 above the limit.
        """
        if self.concurrent_requests is not None and busy > self.concurrent_requests:
            message = f"this replica answers {self.concurrent_requests} requests at a time; try again"
            raise Refused(429, message, code="too_many_requests", retry_after=1)


class Access:
    """The policy as the file has it now.

    Args:
        file: The file; None: everybody may ask for everything.
        clock: Gives monotonic seconds.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._looked = float("-inf")
        self._seen: tuple[int, ...] = ()
        self._policy: Policy | None = Policy() if file is None else None

    def policy(self) -> Policy:
        """Return the policy. While the file cannot be read, the last one holds.

        Raises:
            Refused: 503 while there has never been one: without it nobody can be told from anybody else.
        """
        now = self._clock()
        if self._file is not None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look(self._file)
        if self._policy is None:
            raise Refused(503, "this replica has no access rules yet; try again", code="starting", retry_after=5)
        return self._policy

    def _look(self, file: Path) -> None:
        try:
            stat = file.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen != self._seen:
                self._policy = parse_policy(file.read_bytes())
                self._seen = seen
        except (OSError, ValueError, KeyError, TypeError):
            return


def parse_policy(body: bytes) -> Policy:
    """Read the JSON form.

    Raises:
        ValueError, KeyError, TypeError: It is not one.
    """
    value = json.loads(body)
    callers = None
    if value["keysRequired"]:
        callers = tuple((bytes.fromhex(key["sha256"]), _caller(key)) for key in value["keys"])
    return Policy(
        callers=callers,
        request_bytes=int(value.get("requestBytes") or MAX_BODY),
        concurrent_requests=value.get("concurrentRequests"),
    )


def _caller(key: dict[str, Any]) -> Caller:
    models = key.get("models")
    return Caller(str(key["name"]), None if models is None else frozenset(models))
