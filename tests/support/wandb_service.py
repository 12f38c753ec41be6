"""A service of Weights & Biases that takes what its own client sends, and keeps the figures of each run."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

RUN = {
    "id": "run",
    "config": "{}",
    "summaryMetrics": "{}",
    "historyTail": "[]",
    "eventsTail": "[]",
    "historyLineCount": 0,
    "eventsLineCount": 0,
    "logLineCount": 0,
}


class WandbService:
    """What came.

    Args:
        port: Where it listens, on the loopback interface.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.history: dict[str, list[dict[str, Any]]] = {}
        """Entries of each run's history, by its id, in the order in which they came."""
        self.exit_codes: list[int] = []
        """How each attempt ended."""

    def answer(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Take a request and return the answer."""
        if path == "/graphql":
            name = (asked.get("variables") or {}).get("name")
            project = {"name": "loops", "entity": {"name": "team"}}
            bucket = {**RUN, "name": name, "displayName": name, "project": project}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}, "createRunFiles": {"files": []}}}
        if path.endswith("/file_stream"):
            run = path.split("/")[-2]
            lines = (asked.get("files") or {}).get("wandb-history.jsonl", {}).get("content", [])
            self.history.setdefault(run, []).extend(json.loads(line) for line in lines)
            if asked.get("complete"):
                self.exit_codes.append(asked["exitcode"])
        return {}


@contextmanager
def wandb_service() -> Iterator[WandbService]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            # Telemetry of the client's own is no JSON.
            asked = json.loads(content) if self.path.endswith(("graphql", "file_stream")) else {}
            answer = json.dumps(service.answer(self.path, asked)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = WandbService(server.server_port)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
