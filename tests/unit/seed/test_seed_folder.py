"""The base model's folder appears whole or not at all, and once."""

from pathlib import Path

import pytest
from whetstone_dev.seed.folder import RECORD, SeedError, place

MODEL = {"name": "small", "sourceSha256": "00"}


def _write(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "model.safetensors").chmod(0o600)


def test_folder_is_made_readable_for_other_users_and_keeps_its_record(tmp_path: Path) -> None:
    out = tmp_path / "models" / "small"
    assert place(out, MODEL, _write)
    assert {path.name for path in out.iterdir()} == {"model.safetensors", RECORD}
    assert (out / "model.safetensors").stat().st_mode & 0o777 == 0o644
    assert out.stat().st_mode & 0o777 == 0o755


def test_second_run_makes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "small"
    place(out, MODEL, _write)

    def fail(_: Path) -> None:
        raise AssertionError("converted again")

    assert not place(out, MODEL, fail)


def test_broken_conversion_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def stop_halfway(folder: Path) -> None:
        _write(folder)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        place(tmp_path / "small", MODEL, stop_halfway)
    assert not list(tmp_path.iterdir())
    assert place(tmp_path / "small", MODEL, _write)


def test_folder_with_another_model_is_refused_and_kept(tmp_path: Path) -> None:
    out = tmp_path / "small"
    place(out, {**MODEL, "sourceSha256": "11"}, _write)
    with pytest.raises(SeedError, match=r"small: holds something else .* name another --out folder"):
        place(out, MODEL, _write)
    assert (out / "model.safetensors").read_bytes() == b"weights"


def test_losing_a_race_for_the_folder_is_no_error(tmp_path: Path) -> None:
    out = tmp_path / "small"

    def lose(folder: Path) -> None:
        _write(folder)
        place(out, MODEL, _write)

    assert not place(out, MODEL, lose)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
