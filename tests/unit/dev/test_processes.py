"""Recorded processes, with real ones."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import eventually
from whetstone_dev.processes import Processes, end, start_time

SLEEP = ["sleep", "60"]
STUBBORN = ["bash", "-c", "trap '' TERM; echo ready; exec sleep 60"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path / "processes")
    yield found
    for name in found.names():
        found.stop(name, grace=0)


def test_started_process_is_found_by_another_program(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    again = Processes(processes.folder)
    assert again.alive("sleeper")
    assert again.names() == ["sleeper"]


def test_start_keeps_a_running_process(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    first = processes.pid("sleeper")
    processes.start("sleeper", SLEEP)
    assert processes.pid("sleeper") == first


def test_stopped_process_is_gone_with_its_record(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    pid = processes.pid("sleeper")
    assert pid is not None
    processes.stop("sleeper", grace=5)
    assert start_time(pid) is None
    assert processes.names() == []


def test_process_that_ignores_the_request_is_killed(processes: Processes) -> None:
    processes.start("stubborn", STUBBORN)
    eventually(lambda: "ready" in processes.tail("stubborn"), what="the trap set")
    pid = processes.pid("stubborn")
    assert pid is not None
    processes.stop("stubborn", grace=0.2)
    assert start_time(pid) is None


def test_killed_process_is_not_alive_and_starts_again(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    pid = processes.pid("sleeper")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not processes.alive("sleeper"), what="the killed process not alive")
    processes.start("sleeper", SLEEP)
    assert processes.pid("sleeper") != pid


def test_number_given_to_another_process_is_never_ours(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    path = processes.folder / "sleeper.json"
    record = json.loads(path.read_text())
    processes.stop("sleeper", grace=5)
    # The kernel counts starts in hundredths of a second: the stranger's could be the same.
    boot, _, ticks = record["start"].partition(":")
    with subprocess.Popen(SLEEP) as stranger:
        try:
            path.write_text(json.dumps({**record, "pid": stranger.pid, "start": f"{boot}:{int(ticks) - 1}"}))
            assert not processes.alive("sleeper")
            processes.stop("sleeper", grace=5)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_record_of_another_boot_is_never_ours(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    path = processes.folder / "sleeper.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "start": "another-boot:" + record["start"].partition(":")[2]}))
    assert not processes.alive("sleeper")
    end([record["pid"]], grace=5)


def test_half_written_record_means_not_running(processes: Processes) -> None:
    processes.folder.mkdir()
    (processes.folder / "sleeper.json").write_text('{"pid": 1')
    assert not processes.alive("sleeper")


def test_zombie_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(child.pid) is None


def test_last_lines_of_a_process_are_kept_for_the_error(processes: Processes) -> None:
    processes.start("talker", ["bash", "-c", "seq 20; exec sleep 60"])
    eventually(lambda: "20" in processes.tail("talker").split(), what="the output")
    assert processes.tail("talker", lines=2).split() == ["19", "20"]
    assert processes.tail("nobody") == "(no log)"


def test_process_is_started_again_when_its_file_says_something_else(processes: Processes, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("first")
    processes.start("sleeper", SLEEP, config=[config])
    first = processes.pid("sleeper")
    config.write_text("first")
    processes.start("sleeper", SLEEP, config=[config])
    assert processes.pid("sleeper") == first
    config.write_text("second")
    processes.start("sleeper", SLEEP, config=[config])
    second = processes.pid("sleeper")
    assert second not in {None, first}
    processes.start("sleeper", SLEEP, config=[config])
    assert processes.pid("sleeper") == second
