"""Follows the objects: a line whenever one changes, until all have what the demo waits for or one cannot go on."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from whetstone_dev.commands import DevError
from whetstone_dev.progress import say

POLL_SECONDS = 1.0
LINE_LENGTH = 240
PATIENCE_SECONDS = 30.0
"""An object that is stalled for so long will not go on by itself."""


class DemoError(DevError):
    """The loop cannot go on.

    Args:
        message: Sentence for people.
        obj: The object that cannot.
    """

    def __init__(self, message: str, obj: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.obj = obj


def condition(obj: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    """Return a condition of an object."""
    conditions: Iterable[dict[str, Any]] = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind), None)


def is_true(obj: dict[str, Any] | None, kind: str) -> bool:
    """Return whether a condition of an object is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def describe(obj: dict[str, Any]) -> str:
    """Return one line on where an object is, without anything that changes while nothing happens."""
    status = obj.get("status") or {}
    ready = condition(obj, "Ready") or {"reason": "Pending", "message": "not looked at yet"}
    line = f"{obj['kind']} {obj['metadata']['name']}: {ready['reason']}"
    progress = status.get("progress") or {}
    if not is_true(obj, "Ready") and progress and "finishedAt" not in status:
        done = progress.get("step", progress.get("finished"))
        total = progress.get("maxSteps", progress.get("total"))
        loss = f", loss {progress['loss']}" if "loss" in progress else ""
        eta = f", {progress['etaSeconds']} s left" if "etaSeconds" in progress else ""
        return f"{line}, {progress['phase']}{f' {done} of {total}' if total else ''}{loss}{eta}"
    message = " ".join(ready["message"].split())
    cut = message if len(message) <= LINE_LENGTH else f"{message[:LINE_LENGTH]} …"
    return f"{line} - {cut}" if message else line


class Watch:
    """Prints what changes.

    Args:
        read: Reads the objects to follow.
        check: Looks at what else can be in the way; raises a DemoError.
    """

    def __init__(self, read: Callable[[], list[dict[str, Any]]], *, check: Callable[[], None] = lambda: None) -> None:
        self._read = read
        self._check = check
        self._lines: dict[tuple[str, str], str] = {}
        self._stalled: dict[tuple[str, str], float] = {}
        self._begun = time.monotonic()
        self.ready_after: dict[tuple[str, str], float] = {}
        """Seconds until an object, by kind and name, was Ready for the first time."""

    def until(self, done: Callable[[list[dict[str, Any]]], bool], *, what: str, seconds: float) -> float:
        """Follow the objects until `done` says so; return the seconds that it took.

        Raises:
            DemoError: An object has failed or is stalled, or the time is over.
        """
        start = time.monotonic()
        while True:
            objects = self._read()
            for obj in objects:
                self._report(obj)
            if done(objects):
                return time.monotonic() - start
            for obj in objects:
                self._refuse_stalled(obj)
            self._check()
            if time.monotonic() - start > seconds:
                waiting = next((obj for obj in objects if not is_true(obj, "Ready")), None)
                raise DemoError(f"{what}: not there after {seconds:.0f} s", waiting)
            time.sleep(POLL_SECONDS)

    def _report(self, obj: dict[str, Any]) -> None:
        key, line = (obj["kind"], obj["metadata"]["name"]), describe(obj)
        if self._lines.get(key) != line:
            self._lines[key] = line
            say(f"  {line}")
        if is_true(obj, "Ready"):
            self.ready_after.setdefault(key, round(time.monotonic() - self._begun, 1))

    def _refuse_stalled(self, obj: dict[str, Any]) -> None:
        key = (obj["kind"], obj["metadata"]["name"])
        stalled = condition(obj, "Stalled")
        if stalled is None or stalled["status"] != "True":
            self._stalled.pop(key, None)
            return
        since = self._stalled.setdefault(key, time.monotonic())
        if time.monotonic() - since > PATIENCE_SECONDS or "finishedAt" in (obj.get("status") or {}):
            raise DemoError(f"{key[0]} {key[1]}: {stalled['reason']}: {stalled['message']}", obj)
