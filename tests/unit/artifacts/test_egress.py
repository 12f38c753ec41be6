"""Places outside the cluster are reached by the proxies and authorities that the environment names."""

import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.place_servers import web_server
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.fetch import open_place
from whetstone_artifacts.sources.remote import Content
from whetstone_operator.egress import Egress
from whetstone_operator.resources.egress import CA_FOLDER, egress_variables

PLACES = {
    "files.test": "https://files.test/adapter",
    "hub.test": "hf://owner/adapter@" + "a" * 40,
    "bucket.test": "s3://bucket/adapter",
    "registry.test": "oci://registry.test/adapters/a@sha256:" + "a" * 64,
}
"""A place of each kind by its host."""
FIRST_REQUESTS = {"/adapter/", "/api/models/", "/bucket", "/v2/"}
"""How the paths begin by which a server tells who asks it: a web client, that of a hub, of a bucket, of a registry."""


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that notes where it is asked to go, and goes nowhere."""

    daemon_threads = True
    asked: set[str]


class _Refusal(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.server.asked.add(self.rfile.readline().decode().rsplit(" ", 1)[0])  # type: ignore[attr-defined]
        self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", 0), _Refusal) as server:
        server.asked = set()
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def variables(egress: Egress, *, authorities: Path | None = None) -> dict[str, str]:
    """Return what a container has; the file with the authorities lies elsewhere here."""
    given = {one["name"]: one["value"] for one in egress_variables(egress)}
    return {name: str(authorities) if value.startswith(CA_FOLDER) else value for name, value in given.items()}


def keys_of(host: str, address: str) -> dict[str, str]:
    """Return the keys of a place; those of a hub and a bucket lead to an address."""
    endpoint = f"https://{address}"
    return {
        "hub.test": {"HF_ENDPOINT": endpoint},
        "bucket.test": {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
        },
    }.get(host, {})


def ask(environment: dict[str, str], *, server: str = "") -> None:
    """Ask each place for its files, in a process of its own: some libraries read the variables when imported.

    Args:
        environment: Variables of the process.
        server: Address to ask instead of the places' hosts.
    """
    places = {
        uri.replace(host, server) if server else uri: keys_of(host, server or host) for host, uri in PLACES.items()
    }
    program = f"from unit.artifacts.test_egress import list_files; list_files({places!r})"
    # The S3 libraries would try for many seconds.
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], "AWS_MAX_ATTEMPTS": "1"}
    subprocess.run([sys.executable, "-c", program], env={**paths, **environment}, check=True)


def list_files(places: dict[str, dict[str, str]]) -> None:
    """Ask places for their files; none has any."""
    for uri, keys in places.items():
        with pytest.raises(ArtifactError):
            open_place(uri, Credentials(values=keys)).files(Content.ADAPTER)


def test_every_kind_of_place_is_reached_through_the_proxy(proxy: Proxy) -> None:
    ask(variables(Egress(https_proxy=f"http://127.0.0.1:{proxy.server_address[1]}")))

    assert {f"CONNECT {host}:443" for host in PLACES} <= proxy.asked


def test_every_kind_of_place_is_trusted_by_the_authorities(tmp_path: Path) -> None:
    with web_server(tmp_path, tmp_path) as served:
        trusted = variables(Egress(ca_config_map="authorities"), authorities=served.ca_file)
        ask(trusted, server=served.url.removeprefix("https://"))

    paths = {one.path for one in served.asked}
    assert {first for first in FIRST_REQUESTS if any(path.startswith(first) for path in paths)} == FIRST_REQUESTS


def test_nothing_is_asked_of_a_place_with_an_unknown_authority(tmp_path: Path) -> None:
    with web_server(tmp_path, tmp_path) as served:
        ask({}, server=served.url.removeprefix("https://"))

    assert served.asked == []
