"""Small decisions of the trainer that need no model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from whetstone_artifacts.reporting import Reporter
from whetstone_trainer.failpoints import VARIABLE, failpoint
from whetstone_trainer.progress import Progress
from whetstone_trainer.snapshots import seal, verified_recipe


@pytest.fixture
def reporter(tmp_path: Path) -> Iterator[Reporter]:
    reporter = Reporter(url="http://127.0.0.1:9/v1/reports", token_path=tmp_path / "absent", interval_seconds=0)
    yield reporter
    reporter.close()


def test_steps_appear_as_metrics(reporter: Reporter) -> None:
    progress = Progress(reporter)
    progress.step(step=3, max_steps=9, loss=1.5, eta_seconds=12.4, tokens_per_second=50.0)
    text = generate_latest(progress.registry).decode()
    for line in ("step 3.0", "max_steps 9.0", "loss 1.5", "eta_seconds 12.4", "tokens_per_second 50.0"):
        assert f"whetstone_training_{line}\n" in text


def test_snapshot_is_verified_against_its_manifest(tmp_path: Path) -> None:
    folder, place = tmp_path / "made", tmp_path / "place"
    folder.mkdir()
    (folder / "rows").write_text("one")
    seal(folder, place, recipe_digest="sha256:r")
    assert not folder.exists()
    assert verified_recipe(place) == "sha256:r"
    (place / "rows").write_text("two")
    assert verified_recipe(place) is None
    assert verified_recipe(tmp_path / "absent") is None


def test_failpoint_of_another_name_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "before-publish")
    failpoint("mid-checkpoint", tmp_path)
    assert list(tmp_path.iterdir()) == []
