"""Kills on the node while loops of training, hot-loading and benchmarks run: nothing is lost, and nothing done twice.

`WHETSTONE_CHAOS_SECONDS` says for how long (20 minutes), `WHETSTONE_CHAOS_SEED` in which order; what a turn hits
depends on what is there when it comes. Asserted is what holds whatever was hit.
"""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from support.chaos import Dice, told
from support.chaos_loops import ADAPTERS, Ledger, Loops
from support.chaos_node import FAULTS, Disturber, operator_pods, require_explained, scaled_operator
from support.loop import Seeded
from support.waiting import eventually_none
from whetstone_dev.demo.kube import Kube

pytestmark = [pytest.mark.cluster, pytest.mark.long]
WHOLE_SECONDS: Final = 1200.0
SECONDS: Final = float(os.environ.get("WHETSTONE_CHAOS_SECONDS") or WHOLE_SECONDS)
PAUSES: Final = (15.0, 45.0)


@pytest.fixture
def loops(seeded: Seeded, images: dict[str, str]) -> Iterator[Loops]:
    """A server and an undisturbed training; all of it is gone afterwards, and that is asserted."""
    found = Loops(kube=seeded.kube, namespace=seeded.namespace, images=images)
    yield found
    found.remove_all()


@pytest.fixture
def operators(kube: Kube) -> Iterator[None]:
    """Two operators, one of which leads."""
    with scaled_operator(kube, 2):
        yield


@pytest.mark.usefixtures("operators")
def test_loops_go_on_whatever_is_killed(loops: Loops, kube: Kube, capsys: pytest.CaptureFixture[str]) -> None:
    dice = Dice(int(time.time()))
    turns = dice.rounds(FAULTS, pauses=PAUSES, seconds=SECONDS)
    loops.serve()
    wanted = loops.undisturbed_digest()
    over = threading.Event()
    disturber = Disturber(loops, over=over)
    with capsys.disabled(), Ledger(loops) as ledger, ThreadPoolExecutor(len(ADAPTERS)) as pool:
        print(f"\n{told(dice, turns)}\n")  # noqa: T201 - it is what a person needs to see the same again
        began = time.monotonic()
        futures = [pool.submit(_until, loops, adapter, over) for adapter in ADAPTERS]
        try:
            for turn in turns:
                if over.wait(turn.pause) or time.monotonic() - began > SECONDS:
                    break
                hit = disturber.disturb(turn)
                print(f"{time.monotonic() - began:6.0f} s  {turn.what}: {hit}", flush=True)  # noqa: T201
        finally:
            over.set()
        loops_done = sum(future.result() for future in futures)
        print(f"{time.monotonic() - began:6.0f} s  {loops_done} loops done; hit {dict(disturber.hits)}")  # noqa: T201
    assert loops_done >= len(ADAPTERS)
    missed = set(FAULTS) - set(disturber.hits)
    assert not missed or SECONDS < WHOLE_SECONDS, f"nobody was there in all the time for {missed}"
    assert not ledger.changed, f"results of trials that had ended changed: {ledger.changed}"
    loops.require_served()
    for training in loops.trainings:
        loops.require_trained(training, digest=wanted)
    for run in loops.runs:
        loops.require_measured(run, before=ledger.trials.get(run, {}))
    loops.require_jobs_once(ledger.jobs)
    eventually_none(loops.orphans, what="no child without its owner", seconds=120)
    require_explained(operator_pods(kube), disturber.kills, kube)


def _until(loops: Loops, adapter: str, over: threading.Event) -> int:
    """Run one loop after another until time is over; return how many."""
    number = 0
    try:
        while not over.is_set():
            number += 1
            loops.loop(adapter, number)
    finally:
        # What fails here ends the test at once.
        over.set()
    return number
