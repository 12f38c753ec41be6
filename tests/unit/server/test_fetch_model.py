"""The init container that fetches a pod's base model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.adapters import make_model
from support.place_servers import COMMIT, Served, hub_server
from whetstone_api.reports import TerminationReport
from whetstone_artifacts.models import model_digest
from whetstone_artifacts.sources.fetch import model_folder
from whetstone_server.fetch_model import fetch_base_model

URI = f"hf://team/tiny@{COMMIT}"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    make_model(tmp_path / "hub" / "team" / "tiny")
    with hub_server(tmp_path / "hub") as served:
        yield served


def run(
    folder: Path, hub: Served, *, uri: str = URI, digest: str | None = None
) -> tuple[int, TerminationReport | None]:
    secret, told = folder / "hub-keys", folder / "termination"
    secret.mkdir(exist_ok=True)
    (secret / "HF_ENDPOINT").write_text(hub.url)
    code = fetch_base_model(uri, folder / "models", digest=digest, secret=secret, termination=told)
    return code, TerminationReport.model_validate_json(told.read_bytes()) if told.exists() else None


def test_model_lies_where_the_engine_is_told_to_look(tmp_path: Path, hub: Served) -> None:
    assert run(tmp_path, hub) == (0, None)
    folder = model_folder(tmp_path / "models", URI, None)
    assert model_digest(folder) == model_digest(tmp_path / "hub" / "team" / "tiny")
    hub.asked.clear()
    assert run(tmp_path, hub) == (0, None)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("uri", "digest", "reason", "words"),
    [
        (f"hf://team/none@{COMMIT}", None, "SourceNotFound", "spec.model.source.uri hf://team/none"),
        (URI, "sha256:" + "0" * 64, "DigestMismatch", "spec.model.source.digest: "),
        (f"s3://bucket/{COMMIT}", None, "SecretNotFound", "spec.model.source.secretRef: Secret hub-keys"),
    ],
)
def test_failure_names_field_and_fix_in_the_termination_message(
    tmp_path: Path, hub: Served, uri: str, digest: str | None, reason: str, words: str
) -> None:
    code, report = run(tmp_path, hub, uri=uri, digest=digest)
    assert report is not None
    assert (code, report.reason) == (1, reason)
    assert report.message.startswith(words)
