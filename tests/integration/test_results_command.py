"""`whetstone results` against a real API server without a node: what is refused, and what is printed."""

import os
from pathlib import Path

import pytest
from integration.api import Api
from integration.world import RESULTS, TIME, World
from support.waiting import eventually
from whetstone_cli.__main__ import main
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
ENDED = {"type": "Complete", "status": "True", "reason": "Succeeded", "message": "done", "lastTransitionTime": TIME}
COMPARISON = {
    "baseline": "base",
    "verdict": "Better",
    "difference": "0.5",
    "interval": {"low": "0.1", "high": "0.9"},
    "wins": 4,
    "losses": 0,
    "ties": 4,
}


class Command:
    """The command, as a user of this control plane calls it."""

    def __init__(self, plane: ControlPlane, world: World) -> None:
        self._options = ["-n", world.namespace, "--kubeconfig", str(plane.kubeconfig)]

    def __call__(self, *arguments: str) -> int:
        return main(["results", *arguments, *self._options])


@pytest.fixture
def world(api: Api, namespace: str) -> World:
    """A namespace of the test's own, without an operator."""
    return World(api, namespace)


@pytest.fixture
def command(control_plane: ControlPlane, world: World, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in that namespace."""
    monkeypatch.setenv("PATH", str(control_plane.kubectl.parent), prepend=os.pathsep)
    return Command(control_plane, world)


def set_status(world: World, **status: object) -> None:
    world.api.merge("BenchmarkRun", "run", {"status": status}, namespace=world.namespace, status=True)


def test_the_summary_has_the_figures_and_the_verdict(
    world: World, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    world.benchmark()
    set_status(world, conditions=[ENDED], results=RESULTS, comparison=COMPARISON)
    assert command("run", "--summary") == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    shown = {name.strip(): text.strip() for name, text in rows.items()}
    assert shown["Complete"] == "True (Succeeded): done"
    assert (shown["results.mean"], shown["results.interval"]) == ("0.5", "0.2 to 0.8")
    assert shown["comparison"].startswith("Better than base: difference 0.5 (95 % interval 0.1 to 0.9); 4 tasks won")


def test_a_run_that_has_not_ended_is_not_fetched(
    world: World, command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world.benchmark()
    set_status(world, progress={"phase": "Trials", "finished": 3, "total": 8})
    assert command("run", "-o", str(tmp_path / "out")) == 1
    assert "BenchmarkRun run: it has not ended (3 of 8 trials); wait for condition Complete" in capsys.readouterr().err
    assert world.api.list("Pod", namespace=world.namespace) == []


def test_nothing_is_laid_over_an_existing_folder(
    world: World, command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world.benchmark()
    set_status(world, conditions=[ENDED])
    assert command("run", "-o", str(tmp_path)) == 1
    assert f"{tmp_path} exists; give another -o" in capsys.readouterr().err


def test_without_its_job_the_image_must_be_named(
    world: World, command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world.benchmark()
    set_status(world, conditions=[ENDED])
    assert command("run", "-o", str(tmp_path / "out")) == 1
    assert "name it with --image" in capsys.readouterr().err


def test_a_pod_that_does_not_start_says_why_and_is_removed(
    world: World,
    command: Command,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whetstone_cli.results._START_SECONDS", 1)
    eventually(
        lambda: world.api.get("ServiceAccount", "default", namespace=world.namespace), what="the account of pods"
    )
    world.benchmark()
    set_status(world, conditions=[ENDED])
    assert command("run", "-o", str(tmp_path / "out"), "--image", "reader:1") == 1
    assert "the pod that reads its claim did not start in 1 s" in capsys.readouterr().err
    assert world.api.list("Pod", namespace=world.namespace) == []


def test_a_run_that_does_not_exist_is_named(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("nobody", "--summary") == 1
    assert 'BenchmarkRun nobody: (NotFound): benchmarkruns.whetstone.dev "nobody" not found' in capsys.readouterr().err
