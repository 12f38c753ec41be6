"""Servers that places lie on: a web server with TLS and ranges, and a hub with the API that huggingface_hub asks for.

Both are real HTTP servers on this machine; the hub knows the three routes that the library uses for one commit and
answers 404 to any other, so a library that begins to ask for more fails the tests.
"""

import asyncio
import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from whetstone_dev.commands import run

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCALHOST = "127.0.0.1"


@dataclass
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class Served:
    """A running server and its faults.

    Args:
        url: Its address.
        ca_file: Certificate to trust; None for plain HTTP.
    """

    url: str = ""
    ca_file: Path | None = None
    asked: list[Asked] = field(default_factory=list)
    """Every request so far."""
    authorization: str | None = None
    """Header without which everything is refused with 401."""
    answers: dict[str, int] = field(default_factory=dict)
    """Status to answer with, by path."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many ranges from now on fail with 502, by path."""
    breaks_after: int | None = None
    """So many ranges are served, then every further one fails with `break_status`."""
    break_status: int = 400
    ignores_ranges: bool = False

    def ranges(self, suffix: str) -> list[str]:
        """Return the ranges asked of the files whose path ends so, in order."""
        return [one.range for one in self.asked if one.range and one.path.endswith(suffix)]

    def refusal(self, request: web.Request) -> int | None:
        """Note a request; return the status to refuse it with, None to serve it."""
        wanted = request.headers.get("Range")
        given = request.headers.get("Authorization")
        self.asked.append(Asked(request.method, request.path, wanted, given))
        if self.authorization is not None and given != self.authorization:
            return 401
        if request.path in self.answers:
            return self.answers[request.path]
        if wanted and self.failures.get(request.path, 0):
            self.failures[request.path] -= 1
            return 502
        if self.breaks_after is not None and wanted:
            self.breaks_after -= 1
            if self.breaks_after < 0:
                return self.break_status
        return None


@contextmanager
def running(app: web.Application, served: Served, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Run an application on a free port in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, LOCALHOST, 0, ssl_context=tls).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    served.url = f"{'https' if tls else 'http'}://{LOCALHOST}:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _guarded(served: Served) -> web.Application:
    @web.middleware
    async def guard(request: web.Request, handler: object) -> web.StreamResponse:
        status = served.refusal(request)
        if status is not None:
            return web.Response(status=status)
        return await handler(request)  # type: ignore[operator,no-any-return]

    return web.Application(middlewares=[guard])


@contextmanager
def web_server(root: Path, certificates: Path) -> Iterator[Served]:
    """Serve a folder over HTTPS with a certificate of its own, which no system trusts."""
    key, certificate = certificates / "tls.key", certificates / "tls.crt"
    if not certificate.exists():
        subject = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOCALHOST},DNS:localhost"]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        run([*made, "-keyout", str(key), "-out", str(certificate)])
    served = Served(ca_file=certificate)
    app = _guarded(served)

    async def get(request: web.Request) -> web.StreamResponse:
        path = root / request.match_info["path"]
        if not path.is_file():
            raise web.HTTPNotFound
        return web.Response(body=path.read_bytes()) if served.ignores_ranges else web.FileResponse(path)

    app.router.add_get("/{path:.+}", get)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with running(app, served, tls) as one:
        yield one


@contextmanager
def hub_server(repositories: Path) -> Iterator[Served]:
    """Serve folders `owner/name` as repositories whose branch `main` is at `COMMIT`."""
    served = Served()
    app = _guarded(served)

    def folder_of(request: web.Request) -> Path:
        folder = repositories / request.match_info["owner"] / request.match_info["name"]
        if not folder.is_dir():
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            raise web.HTTPNotFound(headers=headers)
        if request.match_info["revision"] not in ("main", COMMIT):
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        return folder

    async def info(request: web.Request) -> web.Response:
        folder = folder_of(request)
        siblings = [_sibling(path) for path in sorted(folder.iterdir())]
        name = f"{folder.parent.name}/{folder.name}"
        return web.json_response({"_id": "1", "id": name, "modelId": name, "sha": COMMIT, "siblings": siblings})

    async def resolve(request: web.Request) -> web.StreamResponse:
        path = folder_of(request) / request.match_info["file"]
        if not path.is_file():
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
        return web.FileResponse(path)

    app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", info)
    app.router.add_get("/{owner}/{name}/resolve/{revision}/{file}", resolve)
    with running(app, served) as one:
        yield one


def _sibling(path: Path) -> dict[str, object]:
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, object] = {"rfilename": path.name, "size": len(content), "blobId": git}
    if path.suffix == ".safetensors":
        entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry
