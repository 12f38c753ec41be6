"""An S3 server (Versity's gateway over a folder) and an OCI registry (CNCF distribution), started for tests."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.waiting import eventually
from whetstone_dev import packages
from whetstone_dev.gobuild import S3_GATEWAY, build

LOCALHOST = "127.0.0.1"
S3_KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "s3cret-of-tester"}
LOGIN = {"username": "tester", "password": "s3cret"}
_HTPASSWD = "tester:$2a$04$S8jfvRLVwlUshwZ9pBJ/P.qf/u1V9Kw958TCpSjetCT2uG2WsWCkG"


@dataclass(frozen=True)
class S3Server:
    """A running S3 server.

    Args:
        endpoint: Its address.
        filesystem: A client with its keys.
    """

    endpoint: str
    filesystem: Any

    @property
    def keys(self) -> dict[str, str]:
        """What a Secret for it holds."""
        return {**S3_KEYS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    def upload(self, folder: Path, place: str) -> None:
        """Put the files of a folder under `bucket/prefix`; the bucket is made."""
        bucket = place.split("/", 1)[0]
        if not self.filesystem.exists(bucket):
            self.filesystem.call_s3("create_bucket", Bucket=bucket)
        for path in folder.iterdir():
            self.filesystem.put_file(str(path), f"{place}/{path.name}")


@dataclass(frozen=True)
class OciRegistry:
    """A running registry that wants a login.

    Args:
        address: `host:port`.
    """

    address: str

    @property
    def keys(self) -> dict[str, str]:
        """What a Secret for it holds."""
        return {**LOGIN, "plainHTTP": "true"}

    def push(self, folder: Path, repository: str) -> str:
        """Push the files of a folder as `oras push` does; return the URI by digest."""
        import oras.client  # noqa: F401 - the package imports in a circle
        from oras.provider import Registry

        registry = Registry(insecure=True, auth_backend="basic")
        registry.auth.set_basic_auth(**LOGIN)
        files = [f"{path}:application/octet-stream" for path in sorted(folder.iterdir()) if path.is_file()]
        target = f"{self.address}/{repository}"
        answer = registry.push(f"{target}:v1", files=files, disable_path_validation=True)
        return f"oci://{target}@{answer.headers['Docker-Content-Digest']}"


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextmanager
def _process(command: list[str], address: tuple[str, int], log: Path) -> Iterator[None]:
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        eventually(lambda: _answers(address, process, log), what=f"{command[0]} listens")
        yield
    finally:
        process.terminate()
        process.wait(10)


def _answers(address: tuple[str, int], process: "subprocess.Popen[bytes]", log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"ended: {log.read_text()[-2000:]}")
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


@contextmanager
def s3_server(folder: Path, *, host: str = LOCALHOST) -> Iterator[S3Server]:
    """Run an S3 server that keeps its buckets in a folder and checks every signature.

    Args:
        folder: Where buckets and log lie.
        host: The address of this machine to listen on.
    """
    from s3fs import S3FileSystem

    port, data = _free_port(host), folder / "buckets"
    data.mkdir(parents=True)
    keys = ["--access", S3_KEYS["AWS_ACCESS_KEY_ID"], "--secret", S3_KEYS["AWS_SECRET_ACCESS_KEY"]]
    command = [str(build(S3_GATEWAY)), *keys, "--port", f"{host}:{port}", "posix", str(data)]
    with _process(command, (host, port), folder / "s3.log"):
        endpoint = f"http://{host}:{port}"
        client = S3FileSystem(
            key=S3_KEYS["AWS_ACCESS_KEY_ID"],
            secret=S3_KEYS["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=endpoint,
            client_kwargs={"region_name": "us-east-1"},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        yield S3Server(endpoint, client)


@contextmanager
def oci_registry(folder: Path, *, host: str = LOCALHOST) -> Iterator[OciRegistry]:
    """Run a registry with a login.

    Args:
        folder: Where content and log lie.
        host: The address of this machine to listen on.
    """
    packages.install({"docker-registry": "docker-registry"})
    port = _free_port(host)
    (folder / "htpasswd").write_text(_HTPASSWD + "\n")
    settings = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": f"{host}:{port}"},
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}},
    }
    (folder / "registry.yaml").write_text(json.dumps(settings))
    with _process(["docker-registry", "serve", str(folder / "registry.yaml")], (host, port), folder / "registry.log"):
        yield OciRegistry(f"{host}:{port}")
