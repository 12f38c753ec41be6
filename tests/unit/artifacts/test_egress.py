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
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.fetch import open_place
from whetstone_artifacts.sources.remote import Content
from whetstone_operator.egress import Egress
from whetstone_operator.resources.egress import CA_FOLDER, egress_variables

HOST = "outside.test"
PLACES = {
    "https": f"https://{HOST}/adapter",
    "hf": "hf://owner/adapter@" + "a" * 40,
    "s3": "s3://bucket/adapter",
    "oci": f"oci://{HOST}/adapters/a@sha256:" + "a" * 64,
}


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


def keys_of(address: str) -> Credentials:
    """Return keys that lead every place to an address."""
    return Credentials(
        values={
            "HF_ENDPOINT": address,
            "AWS_ENDPOINT_URL": address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
    )


def ask(place: str, address: str, environment: dict[str, str]) -> None:
    """Ask a place for its files as a program of a container does: some libraries read the variables when imported."""
    uri, keys = PLACES[place].replace(HOST, address), keys_of(f"https://{address}")
    program = f"from unit.artifacts.test_egress import list_files; list_files({uri!r}, {dict(keys.values)!r})"
    # The S3 libraries would try for many seconds.
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**paths, **environment}, capture_output=True, text=True, check=False
    )
    assert "ArtifactError" in done.stderr, done.stderr


def list_files(uri: str, keys: dict[str, str]) -> None:
    """Ask a place for its files."""
    open_place(uri, Credentials(values=keys)).files(Content.ADAPTER)


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_reached_through_the_proxy(place: str, proxy: Proxy) -> None:
    ask(place, HOST, variables(Egress(https_proxy=f"http://127.0.0.1:{proxy.server_address[1]}")))

    assert f"CONNECT {HOST}:443" in proxy.asked


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_trusted_by_the_authorities(place: str, tmp_path: Path) -> None:
    with web_server(tmp_path, tmp_path) as served:
        address = served.url.removeprefix("https://")
        ask(place, address, variables(Egress(ca_config_map="authorities"), authorities=served.ca_file))

        assert served.asked, "the server was not asked"


def test_a_place_of_an_unknown_authority_is_not_asked(tmp_path: Path) -> None:
    with web_server(tmp_path, tmp_path) as served:
        ask("https", served.url.removeprefix("https://"), {})

        assert not served.asked
