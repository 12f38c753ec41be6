"""Search in Elasticsearch; a stand-in answers over HTTP, with TLS where it matters, as its API says.

https://www.elastic.co/guide/en/elasticsearch/reference/8.19/search-search.html
"""

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from unit.tooluse.conftest import HANDBOOK, Service, call, instance
from unit.tooluse.conftest import KEY as API_KEY
from whetstone_agent.tooluse.__main__ import main
from whetstone_agent.tooluse.elasticsearch import Elasticsearch
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.errors import ApiNotJsonError, ApiRefusedError, ApiUnavailableError, NoIndexError
from whetstone_agent.tooluse.instances import check_instances
from whetstone_agent.tooluse.outcomes import End, StepCategory
from whetstone_agent.tooluse.world import World

KEY = "ApiKey open-sesame"


class Cluster:
    """The stand-in; `broken` are statuses of the next answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.broken: list[int] = []
        self.body: bytes | None = None

    def answer(self, path: str, body: dict[str, Any], authorization: str | None) -> tuple[int, bytes]:
        self.requests.append((path, body))
        if self.broken:
            return self.broken.pop(0), b"{}"
        if authorization != KEY:
            return 401, b"{}"
        index, what = path.strip("/").split("/")
        if index != "fern-handbook":
            return 404, b'{"error": {"type": "index_not_found_exception"}}'
        if what == "_count":
            return 200, json.dumps({"count": len(HANDBOOK)}).encode()
        words = set(body["query"]["multi_match"]["query"].lower().split())
        found = [one for one in HANDBOOK if words & set(one["text"].lower().rstrip(".").split())]
        hits = [{"_id": one["id"], "_source": {"title": one["title"], "text": one["text"]}} for one in found]
        return 200, self.body or json.dumps({"hits": {"hits": hits[: body["size"]]}}).encode()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def serve(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Start the stand-in; gives its URL."""
    servers = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, content = cluster.answer(self.path, body, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def start(context: ssl.SSLContext | None = None) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def client(url: str, **fields: Any) -> Elasticsearch:
    asked = {"authorization": KEY, "index_prefix": "fern-", "pauses_seconds": (1.0,), "sleep": lambda _: None}
    return Elasticsearch(url, **{**asked, **fields})


def test_documents_are_found_in_the_index_of_their_collection(cluster: Cluster, serve: Callable[..., str]) -> None:
    with client(serve()) as search:
        search.check(["handbook"])
        found = search.search("handbook", "who books trains", 1)
    assert [(one.id, one.title) for one in found] == [("travel", "Travel")]
    assert [path for path, _ in cluster.requests] == ["/fern-handbook/_count", "/fern-handbook/_search"]
    asked = cluster.requests[-1][1]
    assert asked == {
        "query": {"multi_match": {"query": "who books trains", "fields": ["title", "text"]}},
        "size": 1,
    }


def test_a_missing_index_is_named(serve: Callable[..., str]) -> None:
    with client(serve()) as search, pytest.raises(NoIndexError, match="has no index fern-projects"):
        search.check(["handbook", "projects"])


def test_a_passing_fault_is_tried_again_and_a_lasting_one_told(cluster: Cluster, serve: Callable[..., str]) -> None:
    with client(serve()) as search:
        cluster.broken = [503]
        assert search.search("handbook", "trains", 3)
        cluster.broken = [429, 500]
        with pytest.raises(ApiUnavailableError, match="answers 500"):
            search.search("handbook", "trains", 3)


def test_a_wrong_key_is_told_and_not_tried_again(cluster: Cluster, serve: Callable[..., str]) -> None:
    with client(serve(), authorization="ApiKey wrong") as search, pytest.raises(ApiRefusedError, match="401"):
        search.search("handbook", "trains", 3)
    assert len(cluster.requests) == 1


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"took": 1}', b'{"hits": {"hits": [{"_id": "a", "_source": {}}]}}']
)
def test_an_answer_that_is_none_is_told(cluster: Cluster, serve: Callable[..., str], body: bytes) -> None:
    cluster.body = body
    with client(serve()) as search, pytest.raises(ApiNotJsonError):
        search.search("handbook", "trains", 3)


def test_a_server_that_is_not_there_is_told() -> None:
    with client("http://127.0.0.1:9") as search, pytest.raises(ApiUnavailableError, match="does not answer"):
        search.search("handbook", "trains", 3)


def test_an_authority_of_ones_own_is_trusted_and_no_other(serve: Callable[..., str], tmp_path: Path) -> None:
    authority, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    subject = ["-subj", "/CN=search", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", authority], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, key)
    url = serve(context)
    with client(url, authority=authority) as search:
        search.check(["handbook"])
    with client(url) as search, pytest.raises(ApiUnavailableError, match="certificate"):
        search.check(["handbook"])


def test_an_episode_searches_there_and_is_void_where_it_fails(
    world: World, cluster: Cluster, serve: Callable[..., str]
) -> None:
    with client(serve()) as search:
        env = ToolUseEnv(check_instances([instance()], "t.json"), world, retriever=search)
        env.reset(seed=1)
        action = call("retrieve_documents", collection="handbook", query="who books trains")
        observation, *_, info = env.step(action)
        assert "Trains are booked" in observation
        assert info["category"] is StepCategory.EXPECTED
        cluster.broken = [500, 500]
        assert env.foresee(action) is StepCategory.API_FAILED
        cluster.broken = [500, 500]
        *_, info = env.step(call("retrieve_documents", collection="handbook", query="leave"))
        assert (info["end"], info["void"]) == (End.API_UNAVAILABLE, True)


def searching(world_folder: Path, tmp_path: Path, service: Service, url: str, *flags: str) -> int:
    """Run the command with the ground truth on a world that is searched in Elasticsearch; return its exit code."""
    (tmp_path / "one.json").write_text(json.dumps([instance()]))
    place = ["--world", str(world_folder), "--instances", str(tmp_path / "one.json"), "--out", str(tmp_path / "out")]
    api = ["--api-url", service.url, "--api-key-env", "FERN_KEY", "--expert", "GroundTruth"]
    return main(["run", *place, *api, "--elasticsearch-url", url, *flags])


def test_the_command_searches_there_too(
    cluster: Cluster,
    serve: Callable[..., str],
    service: Service,
    world_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FERN_KEY", API_KEY.removeprefix("Bearer "))
    monkeypatch.setenv("SEARCH_KEY", KEY)
    flags = ["--elasticsearch-authorization-env", "SEARCH_KEY", "--elasticsearch-index-prefix", "fern-"]
    assert searching(world_folder, tmp_path, service, serve(), *flags) == 0
    assert [path for path, _ in cluster.requests] == ["/fern-handbook/_count", "/fern-handbook/_search"]
    assert json.loads((tmp_path / "out" / "results.json").read_text())["success"]["rate"] == 1
    assert json.loads((tmp_path / "out" / "run.json").read_text())["elasticsearch"] == "fern-"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "check the key"),
        (["--elasticsearch-authorization-env", "SEARCH_KEY"], "has no index handbook"),
        (["--elasticsearch-authority", "absent.pem"], "--elasticsearch-authority: "),
    ],
)
def test_the_command_names_what_is_wrong_with_the_search_before_it_begins(
    serve: Callable[..., str],
    service: Service,
    world_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("FERN_KEY", API_KEY.removeprefix("Bearer "))
    monkeypatch.setenv("SEARCH_KEY", KEY)
    assert searching(world_folder, tmp_path, service, serve(), *flags) == 1
    assert said in capsys.readouterr().err
    assert not service.requests
