"""Asks a model behind an OpenAI-compatible API."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import httpx

REFUSED: Final = frozenset({401, 403, 404})
"""Wrong key, wrong name or wrong place: no other request would fare better."""
_LONGEST_PAUSE: Final = 60.0
_SHOWN: Final = 300


class TeacherRefusedError(Exception):
    """The server takes no request of ours; the message says why."""


class NoReplyError(Exception):
    """One request has no reply; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back.

    Args:
        text: What the model said.
        finish: Why it ended: `length` for one that was cut off.
        prompt_tokens: As the server counts them; None where it does not say.
        reply_tokens: As the server counts them; None where it does not say.
        seconds: How long it took.
    """

    text: str
    finish: str
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    seconds: float = 0.0


class Teacher:
    """A model. Threads may share it.

    Args:
        url: Base URL of the API, ending in `/v1`.
        key: Sent as bearer; None sends none.
        tries: Requests for one reply at most.
        seconds: How long one may take.
        pause: Waits between two tries, by seconds.

    Raises:
        ModuleNotFoundError: httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tries: int = 5,
        seconds: float = 600.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        self._place = f"{url.rstrip('/')}/chat/completions"
        self._tries = tries
        self._pause = pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def ask(self, body: dict[str, Any]) -> Reply:
        """Return the reply to a request. Busy and failing servers are asked again, later each time.

        Args:
            body: As the API takes it.

        Raises:
            TeacherRefusedError: The server takes none of our requests.
            NoReplyError: It does not take this one, or did not answer after all tries.
        """
        import httpx

        why, wait = "", 1.0
        for number in range(self._tries):
            if number:
                self._pause(min(wait, _LONGEST_PAUSE))
            wait = 2.0**number
            try:
                began = time.monotonic()
                response = self._client.post(self._place, json=body)
            except httpx.HTTPError as error:
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                continue
            if response.status_code == httpx.codes.OK:
                try:
                    return _reply(response.json(), time.monotonic() - began)
                except (ValueError, LookupError, TypeError, AttributeError):
                    why = f"{self._place} answers with something else than a chat completion: {_start(response)}"
                    continue
            why = f"HTTP {response.status_code}: {_start(response)}"
            if response.status_code in REFUSED:
                raise TeacherRefusedError(f"the teacher at {self._place} refuses: {why}; correct --url, --model or key")
            if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR and response.status_code not in (408, 429):
                break
            wait = max(wait, _asked_pause(response))
        raise NoReplyError(why)


def _reply(data: Any, seconds: float) -> Reply:
    choice, usage = data["choices"][0], data.get("usage") or {}
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    prompt, written = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    text = choice["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError(text)
    finish = str(choice.get("finish_reason") or "stop")
    # JSON can say half of a surrogate pair, which no request and no file can carry on.
    text = text.encode(errors="replace").decode()
    return Reply(text=text, finish=finish, prompt_tokens=prompt, reply_tokens=written, seconds=seconds)


def _asked_pause(response: "httpx.Response") -> float:
    """Return the seconds that a server asks to be left alone; 0 where it does not say."""
    try:
        return float(response.headers.get("retry-after", 0))
    except ValueError:
        return 0.0


def _start(response: "httpx.Response") -> str:
    return " ".join(response.text.split())[:_SHOWN]
