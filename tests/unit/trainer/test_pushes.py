"""Pushes of published results by the third Job: done once, found again, refused for good or tried again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.adapters import make_adapter, random_tensors
from support.place_servers import Served, hub_server
from support.trainer_job import Job
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.__main__ import EXIT_RETRY

pytestmark = pytest.mark.torch
ADAPTER_FITS_NOT = 20_000
"""Bytes of a file for which a full claim still has room."""
WITHOUT_CHUNK_STORE = {"HF_HUB_DISABLE_XET": "1"}


@pytest.fixture
def published(job: Job) -> Job:
    """A job whose adapter is published."""
    make_adapter(job.output)
    return job


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    with hub_server(tmp_path / "hub") as served:
        served.authorization = "Bearer t"
        yield served


def claim_push(job: Job, name: str = "claim") -> dict[str, Any]:
    return {
        "name": name,
        "uri": f"pvc://shared/{name}",
        "what": "Adapter",
        "path": str(job.folder / "shared" / name),
    }


def hub_push(job: Job, url: str, token: str = "t") -> dict[str, Any]:
    secret = job.folder / "secrets" / "hub"
    secret.mkdir(parents=True, exist_ok=True)
    (secret / "HF_TOKEN").write_text(token)
    (secret / "HF_ENDPOINT").write_text(url)
    return {"name": "hub", "uri": "hf://team/shell", "what": "Adapter", "secretPath": str(secret)}


def test_adapter_is_pushed_everywhere_and_found_by_the_next_pod(published: Job, hub: Served) -> None:
    published.values["pushes"] = [claim_push(published), hub_push(published, hub.url)]
    assert published.run("merge", **WITHOUT_CHUNK_STORE) == 0, published.log
    digest = adapter_digest(published.output)
    commit = hub.heads["team/shell"]
    expected = [
        {"name": "claim", "uri": "pvc://shared/claim", "digest": digest},
        {"name": "hub", "uri": f"hf://team/shell@{commit}", "digest": digest},
    ]
    assert published.report.result["pushes"] == expected
    assert adapter_digest(published.folder / "shared" / "claim") == digest
    assert published.run("merge", **WITHOUT_CHUNK_STORE) == 0, published.log
    assert published.report.result["pushes"] == expected
    assert hub.heads["team/shell"] == commit
    assert f"found hf://team/shell@{commit}" in published.log


def test_place_that_does_not_answer_is_tried_again_and_keeps_no_other_back(published: Job) -> None:
    published.values["pushes"] = [hub_push(published, "http://127.0.0.1:9"), claim_push(published)]
    assert published.run("merge", **WITHOUT_CHUNK_STORE) == EXIT_RETRY
    assert published.report.reason == "SourceUnreachable"
    assert published.report.message.startswith("spec.output.push[0] (hub): uri hf://team/shell: ")
    assert (published.folder / "shared" / "claim" / "manifest.json").is_file()


@pytest.mark.parametrize("what", ["another adapter there", "a refused token"])
def test_push_that_can_never_work_ends_the_job(published: Job, hub: Served, what: str) -> None:
    published.values["pushes"] = [
        hub_push(published, "http://127.0.0.1:9") if what.startswith("another") else claim_push(published),
        claim_push(published, "taken") if what.startswith("another") else hub_push(published, hub.url, "wrong"),
    ]
    make_adapter(published.folder / "shared" / "taken", config={"lora_alpha": 99})
    before = adapter_digest(published.folder / "shared" / "taken")
    assert published.run("merge", **WITHOUT_CHUNK_STORE) == EXIT_USER_ERROR
    reason, name = ("OutputOccupied", "taken") if what.startswith("another") else ("SourceForbidden", "hub")
    assert published.report.reason == reason
    assert published.report.message.startswith(f"spec.output.push[1] ({name}): ")
    if what.startswith("another"):
        assert f"it holds {before}, not {adapter_digest(published.output)}" in published.report.message
    done = [] if what.startswith("another") else [claim_push(published)["name"]]
    assert [push["name"] for push in published.report.result["pushes"]] == done
    assert adapter_digest(published.folder / "shared" / "taken") == before


def test_full_claim_is_tried_again_and_then_holds_the_whole_copy(published: Job) -> None:
    shutil.rmtree(published.output)
    digest = make_adapter(published.output, tensors=random_tensors(rank=4, layers=2, hidden=1024, seed=1))
    published.values["pushes"] = [claim_push(published)]
    assert published.run("merge", largest_file=ADAPTER_FITS_NOT) == EXIT_RETRY, published.log
    assert published.report.reason == "DiskFull"
    place = published.folder / "shared" / "claim"
    assert published.report.message.startswith(f"spec.output.push[0] (claim): no room for a copy in {place} (OSError")
    assert not place.exists()
    assert list(place.parent.glob(".claim.partial-*")) == []
    assert published.run("merge") == 0, published.log
    assert adapter_digest(place) == digest


def test_adapter_that_is_damaged_is_not_pushed(published: Job) -> None:
    published.values["pushes"] = [claim_push(published)]
    config = published.output / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_bytes()), "lora_alpha": 99}))
    assert published.run("merge") == EXIT_USER_ERROR
    assert published.report.reason == "DigestMismatch"
    assert not (published.folder / "shared").exists()
    shutil.rmtree(published.output)
    assert published.run("merge") == EXIT_USER_ERROR
    assert published.report.reason == "AdapterNotFound"
