"""The company's API: what `openapi.yaml` says, from `records.json`, with nothing but Python's standard library.

    COMPANY_KEY=secret python3 service.py --port 8080

Calls need `Authorization: Bearer <COMPANY_KEY>`. Port 0 takes a free one; the address is printed.
"""

import argparse
import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

RECORDS = json.loads((Path(__file__).parent / "records.json").read_text(encoding="utf-8"))
ONE = {
    "employees": {one["id"]: one for one in RECORDS["employees"]},
    "teams": {one["name"]: one for one in RECORDS["teams"]},
    "stock": {one["code"]: one for one in RECORDS["stock"]},
    "tickets": {str(one["number"]): one for one in RECORDS["tickets"]},
}
LISTS = {
    "employees": ("ids", "id", {"name", "team", "site"}),
    "tickets": ("numbers", "number", {"status", "product"}),
}
"""Name of the list in the answer, field that is listed, fields to filter by."""


def answer(path: str, query: dict[str, str]) -> tuple[int, dict[str, object]]:
    """Return status and body of a GET."""
    kind, *rest = [unquote(part) for part in path.strip("/").split("/")]
    if len(rest) == 1 and kind in ONE:
        found = ONE[kind].get(rest[0])
        return (200, found) if found else (404, {"detail": f"there is no {rest[0]} in {kind}"})
    if rest or kind not in LISTS:
        return 404, {"detail": f"there is no {path}"}
    title, field, filters = LISTS[kind]
    if query.keys() - filters:
        return 422, {"detail": f"can be filtered by {', '.join(sorted(filters))} only"}
    listed = [one[field] for one in RECORDS[kind] if all(one[name] == value for name, value in query.items())]
    return 200, {"count": len(listed), title: listed}


class Handler(BaseHTTPRequestHandler):
    """Answers GETs of those who have the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    key = ""

    def do_GET(self) -> None:
        """Answer a request."""
        if hmac.compare_digest(self.headers.get("Authorization", "").encode(), f"Bearer {self.key}".encode()):
            place = urlsplit(self.path)
            status, body = answer(place.path, dict(parse_qsl(place.query)))
        else:
            status, body = 401, {"detail": "the key is missing or wrong"}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    Handler.key = os.environ["COMPANY_KEY"]
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    server.daemon_threads = True
    print(f"http://{options.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
