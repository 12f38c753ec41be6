"""A real HTTP server in the place of a teacher: it answers by rule, and counts what it is asked."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

type Mind = Callable[[str], str]
"""What it says to the last message of a request."""


@dataclass(kw_only=True)
class StandInTeacher:
    """`faults` are what the next requests are answered with: a status, or a text in the place of JSON."""

    mind: Mind
    faults: list[int | str] = field(default_factory=list)
    usage: bool = True
    finish: str = "stop"
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    keys: set[str | None] = field(default_factory=set)
    hold: threading.Event | None = None
    """Set: replies wait for it, after the first `free` ones."""
    free: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, text: str, key: str | None) -> tuple[int, bytes]:
        with self.lock:
            self.asked[text] += 1
            self.keys.add(key)
            fault = self.faults.pop(0) if self.faults else None
            waits = self.hold is not None and sum(self.asked.values()) > self.free
        if isinstance(fault, int):
            return fault, json.dumps({"error": {"message": "not now"}}).encode()
        if isinstance(fault, str):
            return 200, fault.encode()
        if waits and self.hold is not None:
            self.hold.wait(60)
        body = json.loads(text)
        said = self.mind(body["messages"][-1]["content"])
        with self.lock:
            self.answered[text] += 1
        data: dict[str, Any] = {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": self.finish}]
        }
        if self.usage:
            data["usage"] = {"prompt_tokens": 10, "completion_tokens": 5}
        return 200, json.dumps(data).encode()


@contextmanager
def teaching(mind: Mind, *, host: str = "127.0.0.1", **fields: Any) -> Iterator[StandInTeacher]:
    teacher = StandInTeacher(mind=mind, **fields)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, data = teacher.reply(text, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the signature is the library's
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    teacher.url = f"http://{host}:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield teacher
    finally:
        if teacher.hold is not None:
            teacher.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
