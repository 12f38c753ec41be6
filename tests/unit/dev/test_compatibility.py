"""The page of tested versions."""

from pathlib import Path

import pytest
from whetstone_dev import compatibility, versions
from whetstone_dev.compatibility import UnknownVersionError, locked, main, page
from whetstone_dev.places import CHECKOUT


def test_page_is_current() -> None:
    assert main(["--check", "--root", str(CHECKOUT)]) == 0


def test_every_pinned_version_has_its_row() -> None:
    rows = page()
    for constant, (product, _) in compatibility.CLUSTER.items():
        assert f"| {product} | {getattr(versions, constant)} |" in rows
    for image, names in compatibility.LIBRARIES.items():
        for name in names:
            assert f"| {locked(image, name)} |" in rows


def test_a_version_that_moves_makes_the_page_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    monkeypatch.setattr(versions, "KUEUE", "9.9.9")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "make generate" in capsys.readouterr().err


def test_a_new_constant_gets_a_row_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NEW_SERVICE", "3.2.1", raising=False)
    assert "| New service | 3.2.1 |" in page()


def test_an_image_that_does_not_pin_a_library_is_named() -> None:
    with pytest.raises(UnknownVersionError, match=r"images/operator/requirements.txt does not pin vllm"):
        locked("operator", "vllm")
