"""What a user sees who lacks something: one line that says what, and no traceback."""

import shutil
import subprocess
from pathlib import Path

import pytest
from whetstone_dev.__main__ import main
from whetstone_dev.commands import DevError, run
from whetstone_dev.places import CHECKOUT

BASH = shutil.which("bash") or "/bin/bash"
STUBS = {"uname": "echo Linux", "id": "echo 0", "go": "exit 0"}


def bootstrap(
    folder: Path, variables: dict[str, str] | None = None, **stubs: str | None
) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with nothing on the PATH but stubs; None takes a program away."""
    programs, dev = folder / "bin", folder / "dev"
    programs.mkdir()
    dev.mkdir()
    script = shutil.copy(CHECKOUT / "dev" / "bootstrap.sh", dev)
    for name in ("dirname", "rm"):
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for name, text in {**STUBS, **stubs}.items():
        if text is not None:
            (programs / name).write_text(f"#!{BASH}\n{text}\n")
            (programs / name).chmod(0o755)
    environment = {"PATH": str(programs), "HOME": str(folder), **(variables or {})}
    return subprocess.run([BASH, script], env=environment, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("stubs", "expected"),
    [
        ({"uname": "echo Darwin"}, "this is Darwin: the local cluster needs Linux"),
        ({"id": "echo 1000"}, "not root: "),
        ({"go": None}, "no Go found: "),
        ({}, "no Python 3.12 or 3.13 with venv found: "),
        ({"python3": "exit 1", "python3.13": "exit 1"}, "no Python 3.12 or 3.13 with venv found: "),
    ],
    ids=["not Linux", "not root", "no Go", "no Python", "unfit Python"],
)
def test_bootstrap_refuses_with_one_line(tmp_path: Path, stubs: dict[str, str | None], expected: str) -> None:
    done = bootstrap(tmp_path, **stubs)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"whetstone: {expected}")
    assert done.stdout == ""
    assert not (tmp_path / ".venv").exists()


def test_bootstrap_needs_no_root_for_a_cluster_of_the_users(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, {"KUBECONFIG": "mine", "REGISTRY": "mine"}, id="echo 1000")
    assert done.stderr.startswith("whetstone: no Python")


def test_failure_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["build-tools"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("whetstone: go: program not found; install Go")


def test_status_of_an_absent_cluster_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["cluster", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.endswith("not running") for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_error_of_a_program_holds_its_last_words_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.log"
    with pytest.raises(DevError, match=rf"exit code 3 \(log: {log}\)\n    out of luck"):
        run([BASH, "-c", "echo out of luck >&2; exit 3"], log=log)


def test_program_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(DevError, match=r"sleep 300 \.\.\.: no end after 0\.1 s"):
        run(["sleep", "300"], timeout=0.1)
