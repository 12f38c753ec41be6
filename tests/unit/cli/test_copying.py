"""Copies over a bad connection. A script stands in for kubectl: it runs the command here, its `tar` through a fault."""

from pathlib import Path

import pytest
from whetstone_cli.copying import CopyError, copy_folder
from whetstone_cli.kubectl import Kubectl, KubectlError

SCRIPT = """#!/bin/bash
while [ "$1" != -- ]; do shift; done
shift
if [ "$1" = tar ]; then "$@" | {fault}; exit ${{PIPESTATUS[0]}}; fi
exec "$@"
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with two files."""
    folder = tmp_path / "source"
    (folder / "below").mkdir(parents=True)
    (folder / "results.json").write_text("right")
    (folder / "below" / "large").write_bytes(bytes(100_000))
    return folder


def connection(folder: Path, fault: str) -> Kubectl:
    program = folder / "kubectl"
    program.write_text(SCRIPT.format(fault=fault))
    program.chmod(0o755)
    return Kubectl(program=str(program))


def test_progress_counts_files(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    kubectl = connection(tmp_path, "cat")
    assert copy_folder(kubectl, "pod", str(source), tmp_path / "out", lambda *counts: seen.append(counts)) == 2
    assert seen[-1] == (2, 2)
    assert (tmp_path / "out" / "below" / "large").stat().st_size == 100_000


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("sed s/right/wrong/", CopyError, "./results.json arrived changed"),
        ("head -c 20000", KubectlError, "the connection ended in the middle"),
        ("(cat >/dev/null; echo 'the pod is gone' >&2)", KubectlError, "the pod is gone"),
        ("tar -f - --delete ./results.json", CopyError, "./results.json did not arrive"),
    ],
)
def test_what_did_not_arrive_right_leaves_no_folder(
    source: Path, tmp_path: Path, fault: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        copy_folder(connection(tmp_path, fault), "pod", str(source), tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()


def test_a_copy_that_was_stopped_is_made_anew(source: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.partial"
    left.mkdir()
    (left / "old").write_text("old")
    copy_folder(connection(tmp_path, "cat"), "pod", str(source), tmp_path / "out", lambda *_: None)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["below", "results.json"]


def test_an_empty_folder_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CopyError, match="empty holds no file"):
        copy_folder(connection(tmp_path, "cat"), "pod", str(tmp_path / "empty"), tmp_path / "out", lambda *_: None)
