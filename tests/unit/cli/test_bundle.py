"""`whetstone bundle`: from folders, archives, Parquet, git mirrors and registry files to one pinned task set."""

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from whetstone_api.task_bundle import Bundle, ImageOrigin
from whetstone_artifacts.tasks.build import Builder
from whetstone_artifacts.tasks.bundle import packed, read_bundle
from whetstone_cli.__main__ import main

SHELL = Path(__file__).parents[3] / "examples" / "suites" / "shell"
REFUSED = Path(__file__).parents[3] / "tests" / "suites" / "refused"
NAMES = ("hello-file", "release-steps", "built-tool")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Three tasks of different sorts."""
    for name in NAMES:
        shutil.copytree(SHELL / name, tmp_path / "tasks" / name)
    return tmp_path / "tasks"


def bundle(*arguments: str | Path) -> int:
    return main(["bundle", *map(str, arguments)])


def made(folder: Path) -> Bundle:
    found = read_bundle(folder)
    assert found is not None
    return found


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def mirror(tmp_path: Path, tasks: Path) -> tuple[str, str]:
    """A bare mirror of a repository with the tasks in `sets/basic`; gives its address and the commit."""
    work = tmp_path / "work"
    shutil.copytree(tasks, work / "sets" / "basic")
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(work))
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message=tasks")
    commit = git(work, "rev-parse", "HEAD")
    (work / "sets" / "basic" / "hello-file" / "instruction.md").write_text("Later.\n")
    git(work, "commit", "--quiet", "--all", "--message=later")
    git(tmp_path, "clone", "--quiet", "--bare", str(work), str(tmp_path / "mirror.git"))
    return f"file://{tmp_path / 'mirror.git'}", commit


def parquet(tasks: Path, file: Path, *, wrapped: bool = False) -> Path:
    import pyarrow
    import pyarrow.parquet

    rows = []
    for task in sorted(tasks.iterdir()):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            archive.add(task, arcname=task.name if wrapped else ".")
        rows.append({"path": task.name, "task_binary": stream.getvalue()})
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


def archive(tasks: Path, file: Path) -> Path:
    with tarfile.open(file, "w:gz") as stream:
        stream.add(tasks, arcname="some-set/tasks")
    return file


def registry(file: Path, *, url: str, commit: str) -> Path:
    entries = [{"name": name, "git_url": url, "git_commit_id": commit, "path": f"sets/basic/{name}"} for name in NAMES]
    file.write_text(json.dumps([{"name": "basic", "version": "1.0", "description": "", "tasks": entries}]))
    return file


def test_the_same_tasks_from_five_kinds_of_places_are_the_same_set(
    tmp_path: Path, tasks: Path, mirror: tuple[str, str]
) -> None:
    url, commit = mirror
    sources: dict[str, list[str | Path]] = {
        "folder": [tasks],
        "git": [f"git+{url}@{commit}", "--path", "sets/basic"],
        "parquet": [parquet(tasks, tmp_path / "set.parquet")],
        "wrapped": [parquet(tasks, tmp_path / "wrapped.parquet", wrapped=True)],
        "archive": [archive(tasks, tmp_path / "set.tar.gz")],
        "registry": ["basic@1.0", "--registry", registry(tmp_path / "registry.json", url=url, commit=commit)],
    }
    digests = set()
    for name, arguments in sources.items():
        assert bundle(*arguments, "-o", tmp_path / "out" / name) == 0, name
        digests.add(made(tmp_path / "out" / name).digest)
        held = tmp_path / "out" / name / "tasks" / "hello-file" / "instruction.md"
        assert held.read_text() == (tasks / "hello-file" / "instruction.md").read_text()
    assert len(digests) == 1
    for name in ("git", "registry"):
        assert made(tmp_path / "out" / name).provenance.revisions == [f"{url}@{commit}"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == sorted(sources)


def test_a_bundle_names_images_digests_and_what_cannot_run(
    tmp_path: Path, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(REFUSED / "compose", tasks / "compose")
    (tasks / "broken").mkdir()
    options = ["--image-prefix", "reg.example.com/mirror", "--exclude", "release-*"]
    assert bundle(tasks, "-o", tmp_path / "out", *options) == 0
    found = made(tmp_path / "out")
    assert set(found.tasks) == {"hello-file", "built-tool", "compose"}
    assert {(one.task, one.reference, one.origin) for one in found.images} == {
        ("hello-file", "reg.example.com/mirror/library/debian:trixie-slim", ImageOrigin.PREFIX),
        ("compose", "reg.example.com/mirror/library/debian:trixie-slim", ImageOrigin.PREFIX),
        ("built-tool", None, ImageOrigin.BUILT),
    }
    assert [(one.task, one.reason.value) for one in found.refused] == [
        ("broken", "Invalid"),
        ("built-tool", "ImageMissing"),
        ("compose", "Compose"),
    ]
    told = capsys.readouterr().out
    assert "image prefix reg.example.com/mirror/library/debian:trixie-slim for debian:trixie-slim" in told
    assert "refused compose: Compose" in told


def test_a_dry_run_says_the_same_and_makes_nothing(
    tmp_path: Path, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundle(tasks, "--dry-run") == 0
    told = capsys.readouterr().out
    assert bundle(tasks, "-o", tmp_path / "out") == 0
    assert f"would make {made(tmp_path / 'out').digest}" in told
    assert "3 tasks" in told
    assert bundle(tasks, "-o", tmp_path / "none", "--dry-run") == 0
    assert not (tmp_path / "none").exists()


def test_made_again_it_is_found_and_nothing_else_is_overwritten(
    tmp_path: Path, tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (tmp_path / ".out.partial-dead").mkdir()
    assert bundle(tasks, "-o", out) == 0
    assert not (tmp_path / ".out.partial-dead").exists()
    assert bundle(tasks, "-o", out) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("found ")
    (tasks / "hello-file" / "instruction.md").write_text("Something else.\n")
    assert bundle(tasks, "-o", out) == 1
    assert "never overwritten" in capsys.readouterr().err
    (out / "tasks" / "release-steps" / "task.toml").write_text("")
    assert bundle(SHELL, "-o", out) == 1


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["nowhere", "-o", "out"], "there is no such folder or file", 1),
        (["set@1", "-o", "out", "--registry", "none.json"], "cannot be read", 1),
        (["git+file:///nowhere.git@main", "-o", "out"], "cannot be fetched", 1),
        ([str(SHELL)], "give the folder to make with -o", 2),
        ([str(SHELL), "-o", "out", "--push", "hf://a/b"], "give oci://", 2),
        ([str(SHELL), "-o", "out", "--include", "x*"], "leave none of 34 tasks", 1),
        ([str(SHELL), "-o", "out", "--image", "debian"], "give NAME=VALUE", 2),
    ],
)
def test_what_cannot_be_made_is_said_with_the_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundle(*arguments) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_shows_what_the_registry_has(
    tmp_path: Path, mirror: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = registry(tmp_path / "registry.json", url=mirror[0], commit=mirror[1])
    assert bundle("basic@2.0", "--registry", file, "--dry-run") == 1
    assert "has no task set basic@2.0 (it has basic@1.0)" in capsys.readouterr().err


def _evil(file: Path, tasks: Path) -> Path:
    with tarfile.open(file, "w") as stream:
        stream.add(tasks / "hello-file", arcname="../escaped")
    return file


def _no_columns(file: Path, _: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"path": ["a"]}), file)
    return file


def _not_tar(file: Path, _: Path) -> Path:
    file.write_text("no archive")
    return file


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("evil.tar", _evil, "leads out of the folder"),
        ("text.tar", _not_tar, "no tar archive"),
        ("text.parquet", _not_tar, "not Parquet"),
        ("columns.parquet", _no_columns, "lacks the columns path and task_binary"),
    ],
)
def test_files_that_are_no_task_sets_are_refused(
    tmp_path: Path,
    tasks: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    make: Callable[[Path, Path], Path],
    words: str,
) -> None:
    assert bundle(make(tmp_path / name, tasks), "-o", tmp_path / "out") == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "escaped").exists()


def test_without_a_program_that_builds_images_it_says_so(
    tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bundle(tasks, "-o", tmp_path / "out", "--push-images", "reg.example.com/tasks") == 1
    assert "there is no buildah, podman, docker to build them" in capsys.readouterr().err


def test_a_built_image_is_named_by_its_files_and_arguments(tasks: Path) -> None:
    def name(value: str) -> str:
        builder = Builder(program="buildah", repository="reg/tasks", arguments={"BASE": value})
        return builder.reference("built-tool", tasks / "built-tool" / "environment")

    first = name("debian:13")
    assert first.startswith("reg/tasks:built-tool-")
    assert name("debian:13") == first
    assert name("debian:12") != first
    (tasks / "built-tool" / "environment" / "greet").write_text("#!/bin/sh\n")
    assert name("debian:13") != first


def test_a_packed_bundle_is_the_same_bytes_for_the_same_tasks(tmp_path: Path, tasks: Path) -> None:
    digests = []
    for number in range(2):
        (tasks / "hello-file" / "task.toml").touch()
        assert bundle(tasks, "-o", tmp_path / str(number)) == 0
        with packed(tmp_path / str(number)) as parcel:
            digests.append(parcel.digest)
    assert digests[0] == digests[1]
