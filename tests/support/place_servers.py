"""Servers that places lie on: a web server with TLS and ranges, and a hub with the API that huggingface_hub asks for.

Both are real HTTP servers on this machine; the hub knows the routes that the library uses to read one commit and to
make one, with git-LFS for weights, and answers 404 to any other, so a library that begins to ask for more fails the
tests. It keeps the newest commit only.
"""

import asyncio
import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
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
    made: dict[str, str] = field(default_factory=dict)
    """Visibility of the repositories made here, by name."""
    heads: dict[str, str] = field(default_factory=dict)
    """Newest commit, by repository."""
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    """Commit by repository and tag."""

    def ranges(self, suffix: str) -> list[str]:
        """Return the ranges asked of the files whose path ends so, in order."""
        return [one.range for one in self.asked if one.range and one.path.endswith(suffix)]

    def refusal(self, request: web.Request) -> int | None:
        """Note a request; return the status to refuse it with, None to serve it."""
        wanted = request.headers.get("Range")
        given = request.headers.get("Authorization")
        self.asked.append(Asked(request.method, request.path, wanted, given))
        # Where a large file goes is a signed address, which needs no more.
        signed = request.path.startswith("/lfs/")
        if self.authorization is not None and given != self.authorization and not signed:
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
    certificate, tls = own_certificate(certificates)
    served = Served(ca_file=certificate)
    app = _guarded(served)

    async def get(request: web.Request) -> web.StreamResponse:
        path = root / request.match_info["path"]
        if not path.is_file():
            raise web.HTTPNotFound
        return web.Response(body=path.read_bytes()) if served.ignores_ranges else web.FileResponse(path)

    app.router.add_get("/{path:.+}", get)
    with running(app, served, tls) as one:
        yield one


def own_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a certificate for this machine that no system trusts, and what a server needs to show it."""
    key, certificate = folder / "tls.key", folder / "tls.crt"
    if not certificate.exists():
        subject = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOCALHOST},DNS:localhost"]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        run([*made, "-keyout", str(key), "-out", str(certificate)])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    return certificate, tls


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
        if request.match_info.get("revision", "main") not in ("main", head_of(folder)):
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        return folder

    def name_of(folder: Path) -> str:
        return f"{folder.parent.name}/{folder.name}"

    def head_of(folder: Path) -> str:
        return served.heads.get(name_of(folder), COMMIT)

    async def info(request: web.Request) -> web.Response:
        folder = folder_of(request)
        siblings = [_sibling(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        name = name_of(folder)
        return web.json_response(
            {"_id": "1", "id": name, "modelId": name, "sha": head_of(folder), "siblings": siblings}
        )

    async def resolve(request: web.Request) -> web.StreamResponse:
        path = folder_of(request) / request.match_info["file"]
        if not path.is_file():
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
        return web.FileResponse(path)

    app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", info)
    app.router.add_get("/{owner}/{name}/resolve/{revision}/{file}", resolve)
    app.router.add_get("/api/datasets/{owner}/{name}/revision/{revision}", info)
    app.router.add_get("/datasets/{owner}/{name}/resolve/{revision}/{file:.+}", resolve)
    _writable(app, served, repositories, folder_of=folder_of, head_of=head_of)
    with running(app, served) as one:
        yield one


def _writable(
    app: web.Application,
    served: Served,
    repositories: Path,
    *,
    folder_of: Callable[[web.Request], Path],
    head_of: Callable[[Path], str],
) -> None:
    """Add the routes by which a repository and a commit in it are made."""
    large: dict[str, bytes] = {}

    async def create(request: web.Request) -> web.Response:
        asked = await request.json()
        folder = repositories / asked["organization"] / asked["name"]
        name = f"{folder.parent.name}/{folder.name}"
        if folder.exists():
            told = {"error": "You already created this model repo", "url": f"{served.url}/{name}"}
            return web.json_response(told, status=409)
        folder.mkdir(parents=True)
        (folder / ".gitattributes").write_text("*.safetensors filter=lfs\n")
        served.made[name] = asked["visibility"]
        return web.json_response({"url": f"{served.url}/{name}"})

    async def preupload(request: web.Request) -> web.Response:
        folder_of(request)
        files = [
            {
                "path": one["path"],
                "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for one in (await request.json())["files"]
        ]
        return web.json_response({"files": files})

    async def batch(request: web.Request) -> web.Response:
        wanted = (await request.json())["objects"]
        objects = [{**one, "actions": {"upload": {"href": f"{served.url}/lfs/{one['oid']}"}}} for one in wanted]
        return web.json_response({"transfer": "basic", "objects": objects})

    async def upload(request: web.Request) -> web.Response:
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != request.match_info["oid"]:
            raise web.HTTPBadRequest
        large[request.match_info["oid"]] = content
        return web.Response()

    async def commit(request: web.Request) -> web.Response:
        folder = folder_of(request)
        lines = [json.loads(line) for line in (await request.text()).splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit", head_of(folder)) != head_of(folder):
            return web.json_response({"error": "A commit has happened since"}, status=412)
        for line in lines:
            if line["key"] == "file":
                (folder / line["value"]["path"]).write_bytes(base64.b64decode(line["value"]["content"]))
            if line["key"] == "lfsFile":
                (folder / line["value"]["path"]).write_bytes(large[line["value"]["oid"]])
        name = f"{folder.parent.name}/{folder.name}"
        served.heads[name] = hashlib.sha1(f"{head_of(folder)}{header}".encode()).hexdigest()
        url = f"{served.url}/{name}/commit/{served.heads[name]}"
        return web.json_response({"success": True, "commitOid": served.heads[name], "commitUrl": url})

    async def tag(request: web.Request) -> web.Response:
        folder = folder_of(request)
        key = (f"{folder.parent.name}/{folder.name}", (await request.json())["tag"])
        if key in served.tags:
            return web.json_response({"error": "Tag reference exists already"}, status=409)
        served.tags[key] = request.match_info["revision"]
        return web.Response()

    async def validate(_: web.Request) -> web.Response:
        return web.json_response({"errors": [], "warnings": []})

    app.router.add_post("/api/repos/create", create)
    app.router.add_post("/api/validate-yaml", validate)
    app.router.add_post("/api/models/{owner}/{name}/preupload/{revision}", preupload)
    app.router.add_post("/{owner}/{name}.git/info/lfs/objects/batch", batch)
    app.router.add_put("/lfs/{oid}", upload)
    app.router.add_post("/api/models/{owner}/{name}/commit/{revision}", commit)
    app.router.add_post("/api/models/{owner}/{name}/tag/{revision}", tag)


def _sibling(path: Path, folder: Path) -> dict[str, object]:
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, object] = {"rfilename": str(path.relative_to(folder)), "size": len(content), "blobId": git}
    if path.suffix == ".safetensors":
        entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry
