"""Adapter folders: digest, verification, fetching, publishing, locking, adoption."""

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from support.adapters import lineage, lora_tensors, make_adapter, make_model
from whetstone_api.adapter_artifact import IDENTITY_FILES, LINEAGE_FILE, MANIFEST_FILE, WEIGHTS_FILE
from whetstone_api.digests import content_digest
from whetstone_api.run_artifact import RESULTS_FILE
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.adoption import find_adapter, find_run
from whetstone_artifacts.errors import ArtifactError, OutputLockedError
from whetstone_artifacts.fingerprint import model_fingerprint
from whetstone_artifacts.folders import (
    adapter_digest,
    beside,
    fetch_adapter,
    file_entries,
    publish_folder,
    verify_adapter,
    write_manifest,
)
from whetstone_artifacts.lock import output_lock


def test_digest_covers_only_what_an_engine_reads(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "a", history=lineage())
    entries = file_entries(tmp_path / "a")
    assert digest == content_digest({name: entries[name].sha256 for name in IDENTITY_FILES})
    (tmp_path / "a" / LINEAGE_FILE).unlink()
    assert adapter_digest(tmp_path / "a") == digest


def test_changed_weights_are_a_digest_mismatch_that_names_the_file(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "a")
    with (tmp_path / "a" / WEIGHTS_FILE).open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x01")
    with pytest.raises(ArtifactError, match=WEIGHTS_FILE) as caught:
        verify_adapter(tmp_path / "a", digest)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_another_adapter_at_the_place_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path / "a")
    with pytest.raises(ArtifactError, match="expected sha256:00") as caught:
        verify_adapter(tmp_path / "a", "sha256:" + "0" * 64)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_empty_place_is_adapter_not_found(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        verify_adapter(tmp_path / "nothing", None)
    assert caught.value.reason is Reason.ADAPTER_NOT_FOUND


def test_pickled_adapter_is_refused_with_the_fix(tmp_path: Path) -> None:
    make_adapter(tmp_path / "a")
    (tmp_path / "a" / WEIGHTS_FILE).rename(tmp_path / "a" / "adapter_model.bin")
    with pytest.raises(ArtifactError, match="safe_serialization=True"):
        adapter_digest(tmp_path / "a")


def test_symbolic_link_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path / "a")
    (tmp_path / "a" / "extra.json").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match="symbolic link"):
        verify_adapter(tmp_path / "a", None)


def test_foreign_adapter_without_manifest_verifies(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "a")
    (tmp_path / "a" / MANIFEST_FILE).unlink()
    assert verify_adapter(tmp_path / "a", digest).digest == digest


def test_fetched_copy_is_whole_and_fetching_again_does_nothing(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "a", history=lineage())
    for name in ("optimizer.pt", "README.md", "tokenizer.json", "chat_template.jinja", "training_metrics.json"):
        (tmp_path / "a" / name).write_text("not for a server")
    write_manifest(tmp_path / "a")
    fetch_adapter(tmp_path / "a", tmp_path / "copy", digest)
    assert set(verify_adapter(tmp_path / "copy", digest).files) == {*IDENTITY_FILES, LINEAGE_FILE}
    before = (tmp_path / "copy" / WEIGHTS_FILE).stat().st_ino
    fetch_adapter(tmp_path / "a", tmp_path / "copy", digest)
    assert (tmp_path / "copy" / WEIGHTS_FILE).stat().st_ino == before


def test_fetch_of_wrong_content_leaves_nothing(tmp_path: Path) -> None:
    make_adapter(tmp_path / "a")
    (tmp_path / "target").mkdir()
    with pytest.raises(ArtifactError) as caught:
        fetch_adapter(tmp_path / "a", tmp_path / "target" / "copy", "sha256:" + "1" * 64)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert list((tmp_path / "target").iterdir()) == []


def test_fetch_repairs_a_damaged_copy_and_removes_stale_partials(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "a")
    target = tmp_path / "t" / "copy"
    target.parent.mkdir()
    fetch_adapter(tmp_path / "a", target, digest)
    (target / WEIGHTS_FILE).write_bytes(b"")
    (tmp_path / "t" / ".copy.partial-dead").mkdir()
    fetch_adapter(tmp_path / "a", target, digest)
    verify_adapter(target, digest)
    assert [path.name for path in target.parent.iterdir()] == ["copy"]


def test_publish_never_overwrites(tmp_path: Path) -> None:
    make_adapter(tmp_path / "new")
    make_adapter(tmp_path / "out" / "place")
    with pytest.raises(ArtifactError) as caught:
        publish_folder(tmp_path / "new", tmp_path / "out" / "place")
    assert caught.value.reason is Reason.OUTPUT_OCCUPIED
    publish_folder(tmp_path / "new", tmp_path / "deep" / "er" / "place")
    verify_adapter(tmp_path / "deep" / "er" / "place", None)


def test_folder_that_a_killed_publication_left_is_cleared_and_those_of_other_places_are_not(tmp_path: Path) -> None:
    place = tmp_path / "out"
    for name in (".out.partial-dead", ".outer.partial-busy"):
        make_adapter(tmp_path / name)
    with beside(place) as folder:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder.name, ".outer.partial-busy"])
        make_adapter(folder / "adapter")
        publish_folder(folder / "adapter", place)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".outer.partial-busy", "out"]


def test_same_recipe_is_adopted_and_another_refused_by_field(tmp_path: Path) -> None:
    place = tmp_path / "out"
    assert find_adapter(place, "sha256:recipe") is None
    make_adapter(place, history=lineage(recipe={"seed": 1, "lora": {"rank": 4}}))
    found = find_adapter(place, "sha256:recipe")
    assert found is not None
    assert found.object_name == "job"
    with pytest.raises(ArtifactError, match=r"lora\.rank: 4 there, 8 asked") as caught:
        find_adapter(place, "sha256:other", recipe={"seed": 1, "lora": {"rank": 8}})
    assert caught.value.reason is Reason.OUTPUT_OCCUPIED


def test_damaged_artifact_is_not_adopted(tmp_path: Path) -> None:
    make_adapter(tmp_path / "out", history=lineage())
    (tmp_path / "out" / WEIGHTS_FILE).write_bytes(b"x")
    with pytest.raises(ArtifactError) as caught:
        find_adapter(tmp_path / "out", "sha256:recipe")
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_foreign_files_occupy_the_output(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="not Whetstone's") as caught:
        find_adapter(tmp_path, "sha256:recipe")
    assert caught.value.reason is Reason.OUTPUT_OCCUPIED


def test_unfinished_run_is_continued_and_unreadable_results_refused(tmp_path: Path) -> None:
    (tmp_path / "harbor").mkdir()
    assert find_run(tmp_path, "sha256:recipe") is None
    (tmp_path / RESULTS_FILE).write_text("{}")
    with pytest.raises(ArtifactError) as caught:
        find_run(tmp_path, "sha256:recipe")
    assert caught.value.reason is Reason.OUTPUT_OCCUPIED


def _hold(place: Path, held: Event) -> None:
    with output_lock(place):
        held.set()
        held.wait()
        multiprocessing.Event().wait()


def test_a_killed_holder_frees_the_output(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "out", held))
    process.start()
    try:
        assert held.wait(30)
        with pytest.raises(OutputLockedError), output_lock(tmp_path / "out", wait_seconds=0):
            pass
    finally:
        process.kill()
        process.join()
    with output_lock(tmp_path / "out", wait_seconds=10):
        pass


def test_fingerprint_tells_revisions_apart(tmp_path: Path) -> None:
    make_model(tmp_path / "one")
    make_model(tmp_path / "same")
    make_model(tmp_path / "other", seed=1)
    assert model_fingerprint(tmp_path / "one") == model_fingerprint(tmp_path / "same")
    assert model_fingerprint(tmp_path / "one") != model_fingerprint(tmp_path / "other")
    with pytest.raises(ArtifactError) as caught:
        model_fingerprint(tmp_path / "none")
    assert caught.value.reason is Reason.BASE_MODEL_NOT_FOUND


def test_manifest_follows_the_files(tmp_path: Path) -> None:
    first = make_adapter(tmp_path / "a")
    make_adapter(tmp_path / "a", tensors=lora_tensors(fill=0.25))
    assert write_manifest(tmp_path / "a").digest != first
