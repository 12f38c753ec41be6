"""Whether compiling pays is seen from the steps themselves, and decided once for all attempts and processes."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from whetstone_artifacts.training_choice import Choice, Freedom
from whetstone_trainer.attempts import go_on
from whetstone_trainer.distributed import Place, Ranks
from whetstone_trainer.plan import Device, Plan

pytestmark = pytest.mark.torch
PLAN = Plan(
    choice=Choice(micro_batch=4, checkpointing=False, memory=None),
    freedom=Freedom(batch_size=8),
    padding_free=False,
    attention="sdpa",
    compiled=False,
    tries_compiling=True,
    reason="as tried",
)
PART = 11
"""Steps without, and then with compiled layers: three that warm up, eight that are timed."""
NONE: Mapping[int, float] = {}


class Run:
    """Steps of a training whose seconds a test sets, and a model whose layers say whether they are compiled."""

    def __init__(self, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from whetstone_trainer import compile_trial

        self.workspace, self.now, self.step, self.compiled = workspace, 0.0, 0, False
        monkeypatch.setattr(compile_trial, "compile_layers", lambda *_: setattr(self, "compiled", True))
        monkeypatch.setattr(compile_trial, "uncompile_layers", lambda *_: setattr(self, "compiled", False))
        ranks = Ranks(Place())
        self.trial = compile_trial.CompileTrial(PLAN, workspace, recipe_digest="r", ranks=ranks, clock=lambda: self.now)

    def go(self, *, max_steps: int, plain: float, compiled: float, odd: Mapping[int, float] = NONE) -> Any:
        """Make all steps and return the plan that comes out.

        Args:
            max_steps: How many there are.
            plain: Seconds of a step without compiled layers.
            compiled: With them.
            odd: Seconds of other steps, by their number in each part of the trial.
        """
        while self.step < max_steps:
            self.now += 1000.0  # Between two steps: evaluations, checkpoints.
            self.trial.on_step_begin()
            self.now += odd.get(self.step % PART, compiled if self.compiled else plain)
            self.step += 1
            state = SimpleNamespace(global_step=self.step, max_steps=max_steps)
            self.trial.on_step_end(None, state, None, model=None)
        return self.trial.plan


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_layers_stay_compiled_where_that_is_faster(run: Run) -> None:
    plan = run.go(max_steps=1000, plain=1.0, compiled=0.6)
    assert (plan.compiled, plan.tries_compiling, run.compiled) == (True, False, True)
    assert plan.reason == "the layers are compiled, since a step took 1.00 s without and 0.60 s with it; as tried"


def test_layers_run_as_they_were_where_compiling_is_no_faster(run: Run) -> None:
    plan = run.go(max_steps=1000, plain=1.0, compiled=1.1)
    assert (plan.compiled, plan.tries_compiling, run.compiled) == (False, False, False)
    assert plan.reason.startswith("nothing is compiled, since a step took 1.00 s without and 1.10 s with it")


def test_steps_that_warm_up_or_fall_out_of_the_rule_do_not_count(run: Run) -> None:
    slow = dict.fromkeys((0, 1, 2, 5, 7, 9), 90.0)
    plan = run.go(max_steps=1000, plain=1.0, compiled=0.6, odd=slow)
    assert plan.reason.startswith("the layers are compiled, since a step took 1.00 s without and 0.60 s with it")
    assert plan.compiled


@pytest.mark.parametrize(("max_steps", "tried"), [(PART + 224, False), (PART + 225, True)])
def test_compiling_is_tried_where_what_is_left_could_pay_for_it(run: Run, max_steps: int, tried: bool) -> None:
    """A minute and a half is what it costs, four tenths of a step what it saves at most."""
    assert run.go(max_steps=max_steps, plain=1.0, compiled=0.6).compiled is tried


def test_other_processes_do_as_rank_0_has_measured(run: Run) -> None:
    measured = iter([1.0, 0.5])
    others = {"told": lambda _seconds: next(measured), "place": Place(rank=1, size=2)}
    run.trial._ranks = SimpleNamespace(**others)  # type: ignore[assignment]
    plan = run.go(max_steps=1000, plain=1.0, compiled=3.0)
    assert (plan.compiled, run.compiled) == (True, True)
    assert not (run.workspace / "plan.json").exists()


def test_short_training_does_not_pay_for_compiling(run: Run) -> None:
    plan = run.go(max_steps=100, plain=1.0, compiled=0.1)
    assert (plan.compiled, plan.tries_compiling, run.compiled) == (False, False, False)
    assert plan.reason.startswith("nothing is compiled, since 89 steps of 1.00 s cannot pay for it")


@pytest.mark.parametrize("compiled", [0.5, 2.0])
def test_later_attempts_do_as_was_decided(run: Run, compiled: float) -> None:
    decided = run.go(max_steps=1000, plain=1.0, compiled=compiled)
    on_gpu = {"device": Device(is_gpu=True), "killed_pods": []}
    again = go_on(PLAN, run.workspace, recipe_digest="r", **on_gpu)
    assert (again.compiled, again.tries_compiling) == (compiled < 1, False)
    assert again.reason == decided.reason
    assert go_on(PLAN, run.workspace, recipe_digest="other", **on_gpu).tries_compiling


def test_attempt_that_ends_within_the_trial_decides_nothing(run: Run) -> None:
    assert run.go(max_steps=5, plain=1.0, compiled=0.5).tries_compiling
    assert not (run.workspace / "plan.json").exists()


def test_compiled_layers_can_run_as_they_were() -> None:
    import torch
    from whetstone_trainer.device import layers_of, uncompile_layers

    model = torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)]))
    layers = layers_of(model)
    for layer in layers:
        layer.compile(backend="eager")
    uncompile_layers(model)
    assert len(layers) == 3
    assert all(layer._compiled_call_impl is None for layer in layers)
    assert layers[0](torch.ones(1, 2)).shape == (1, 2)
