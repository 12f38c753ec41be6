"""Runs whose tasks and agents lie elsewhere: a registry and a bucket that want keys, and a ConfigMap."""

import io
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.test_run_agents import CODE
from support.obedient_runs import RUN_SECONDS, Runs, rewards
from support.store_servers import OciRegistry, S3Server, oci_registry, s3_server
from support.waiting import eventually
from whetstone_api.task_bundle import BUNDLE_FILE, Bundle
from whetstone_cli.__main__ import main
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo.watch import condition

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SHELL = Path(__file__).parents[2] / "examples" / "suites" / "shell"
TASKS = ("hello-file", "json-oldest")
TASK_IMAGES = ("debian:trixie-slim", "python:3.13-slim")
ORACLE = {"name": "oracle"}


@dataclass(frozen=True, kw_only=True)
class Places:
    """The servers, and what was pushed to both by `whetstone bundle`.

    Args:
        runs: The namespace, with a Secret for each of them.
        bucket: The S3 server.
        uri: The bundle in the registry.
        bundle: The bundle's folder.
    """

    runs: Runs
    bucket: S3Server
    uri: str
    bundle: Path

    @property
    def digest(self) -> str:
        """Digest of the task set."""
        return Bundle.model_validate_json((self.bundle / BUNDLE_FILE).read_bytes()).digest

    def suite(self, dataset: dict[str, Any]) -> dict[str, Any]:
        """Return a suite of the tasks at a place, with the images that the node has."""
        trial = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
        images = {"map": dict.fromkeys(TASK_IMAGES, self.runs.images["task"])}
        return {"harbor": {"dataset": dataset, "trialResources": trial, "images": images}}

    def start(self, name: str, dataset: dict[str, Any], **fields: Any) -> None:
        """Start a run with the oracle on the tasks at a place."""
        self.runs.start(name, name, **{"agent": ORACLE, "suite": self.suite(dataset), **fields})

    def failed(self, name: str) -> dict[str, Any]:
        """Wait until a run has failed, and return the condition."""
        return eventually(
            lambda: condition(self.runs.get("BenchmarkRun", name), "Failed"),
            what=f"run {name} has failed",
            seconds=RUN_SECONDS,
        )


def pushed(bundle: Path, where: str, keys: dict[str, str]) -> str:
    """Make a bundle, push it, and return its place by digest."""
    secret = bundle.with_name("keys-" + where.split(":", 1)[0])
    secret.mkdir()
    for key, value in keys.items():
        (secret / key).write_text(value)
    arguments = [argument for name in TASKS for argument in ("--include", name)]
    assert main(["bundle", str(SHELL), "-o", str(bundle), *arguments, "--push", where, "--secret", str(secret)]) == 0
    return where


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with oci_registry(tmp_path_factory.mktemp("registry"), host=Cluster().ranges.host()) as found:
        yield found


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), host=Cluster().ranges.host()) as found:
        found.filesystem.call_s3("create_bucket", Bucket="sets")
        yield found


@pytest.fixture
def places(
    runs: Runs, registry: OciRegistry, bucket: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Places:
    """The bundle in both places, and a Secret for each."""
    for name, keys in (("registry", registry.keys), ("bucket", bucket.keys)):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": keys}
        runs.kube.apply(secret, namespace=runs.namespace)
    pushed(tmp_path / "bundle", "s3://sets/bundle", bucket.keys)
    capsys.readouterr()
    pushed(tmp_path / "bundle", f"oci://{registry.address}/sets/shell", registry.keys)
    uri = capsys.readouterr().out.splitlines()[-1].split()[1]
    assert "@sha256:" in uri
    return Places(runs=runs, bucket=bucket, uri=uri, bundle=tmp_path / "bundle")


def archive(folder: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as packing:
        packing.add(folder, arcname=folder.name)
    return stream.getvalue()


def test_the_oracle_solves_a_bundle_of_a_registry_in_two_shards(places: Places) -> None:
    dataset = {"uri": places.uri, "digest": places.digest, "secretRef": {"name": "registry"}}
    places.start("from-registry", dataset, shards=2)
    run = places.runs.end("from-registry")
    assert (run["status"]["results"]["mean"], run["status"]["results"]["tasks"]) == ("1", len(TASKS))
    assert run["status"]["suiteDigest"] == places.digest
    pods = places.runs.runner_pods("from-registry")
    assert len(pods) == 2
    for pod in pods:
        [main_container] = pod["spec"]["containers"]
        assert not any("secrets/registry" in one["mountPath"] for one in main_container["volumeMounts"])
    records = places.runs.host_folder("results").glob("from-registry/sources/*-tasks.json")
    assert len(list(records)) == 1


def test_a_bundle_of_a_bucket_is_the_same_set(places: Places) -> None:
    places.start("from-bucket", {"uri": "s3://sets/bundle", "secretRef": {"name": "bucket"}})
    run = places.runs.end("from-bucket")
    assert (run["status"]["results"]["mean"], run["status"]["suiteDigest"]) == ("1", places.digest)


def test_an_archive_of_a_config_map_is_run(places: Places) -> None:
    content = b64encode(archive(places.bundle / "tasks")).decode()
    tiny = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tiny"}, "binaryData": {"set.tgz": content}}
    places.runs.kube.apply(tiny, namespace=places.runs.namespace)
    places.start("from-map", {"configMapRef": {"name": "tiny", "key": "set.tgz"}})
    assert places.runs.end("from-map")["status"]["suiteDigest"] == places.digest


def test_a_zip_archive_in_a_claim_is_run(places: Places) -> None:
    with zipfile.ZipFile(places.runs.host_folder("data") / "set.zip", "w", zipfile.ZIP_DEFLATED) as packing:
        for path in (places.bundle / "tasks").rglob("*"):
            if path.is_file():
                packing.write(path, path.relative_to(places.bundle))
    places.start("from-zip", {"uri": "pvc://data/set.zip", "digest": places.digest})
    run = places.runs.end("from-zip")
    assert (run["status"]["results"]["mean"], run["status"]["suiteDigest"]) == ("1", places.digest)


def test_an_agent_of_a_bucket_works(places: Places, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(CODE)
    places.bucket.filesystem.pipe_file("sets/agent.tar.gz", archive(tmp_path / "code"))
    places.runs.write_tasks("bucket-agent", {"good": "echo 1 >answer.txt"})
    source = {"uri": "s3://sets/agent.tar.gz", "secretRef": {"name": "bucket"}}
    places.runs.start("bucket-agent", "bucket-agent", agent={"importPath": "mine:Mine", "source": source})
    places.runs.end("bucket-agent")
    assert rewards(places.runs.artifact("bucket-agent")) == {"good": [1.0]}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("no-such-set", {"uri": "s3://sets/none"}, "SourceNotFound"),
        ("other-digest", {"digest": "sha256:" + "0" * 64}, "DigestMismatch"),
        ("other-keys", {"secretRef": {"name": "wrong"}}, "SourceForbidden"),
    ],
)
def test_a_place_that_is_wrong_fails_the_run_at_its_first_pod(
    places: Places, name: str, changes: dict[str, Any], reason: str
) -> None:
    keys = {**places.bucket.keys, "AWS_SECRET_ACCESS_KEY": "wrong"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": keys}
    places.runs.kube.apply(secret, namespace=places.runs.namespace)
    places.start(name, {"uri": "s3://sets/bundle", "secretRef": {"name": "bucket"}, **changes})
    failed = places.failed(name)
    assert failed["reason"] == reason
    assert failed["message"].startswith("spec.suite.harbor.dataset (s3://sets/")
    assert len(places.runs.runner_pods(name)) == 1


def test_a_bucket_whose_content_changes_does_not_mix_two_sets(places: Places) -> None:
    runs = places.runs
    runs.write_tasks("moving", {"first": "echo 1 >answer.txt"})
    folder = runs.host_folder("data") / "moving"
    places.bucket.filesystem.pipe_file("sets/moving.tar.gz", archive(folder))
    runs.hold("first")
    try:
        runs.start(
            "moving",
            "moving",
            suite=places.suite({"uri": "s3://sets/moving.tar.gz", "secretRef": {"name": "bucket"}}),
        )
        eventually(lambda: runs.trial_pods("moving"), what="a trial", seconds=RUN_SECONDS)
        runs.write_tasks("moving", {"second": "echo 1 >answer.txt"})
        places.bucket.filesystem.pipe_file("sets/moving.tar.gz", archive(folder))
        [pod] = runs.runner_pods("moving")
        runs.kube.delete("v1", "Pod", name=pod["metadata"]["name"], namespace=runs.namespace)
        failed = places.failed("moving")
    finally:
        runs.release()
    assert failed["reason"] == "DigestMismatch"
    assert "whetstone.dev/retry-requested-at" in failed["message"]
