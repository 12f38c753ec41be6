"""An engine that says it is healthy and generates nothing is found, told, and its health check fails."""

import asyncio
import dataclasses
import time

import pytest
from support.fake_vllm import BASE
from whetstone_api.pod_state import STALL_PATH
from whetstone_server.guard.whetstone_guard.asgi import Refused
from whetstone_server.guard.whetstone_guard.stall import LONGEST_SECONDS, Stall

from .conftest import DEADLINE_SECONDS, TOKEN, Pod
from .test_sidecar_faults import http_of, reached


def watch(pod: Pod, **seconds: float) -> None:
    """Let the sidecar judge within moments."""
    wanted = {"stall_look_seconds": 0.01, "stall_ask_seconds": 0.05, "stall_seconds": 0.3, **seconds}
    pod.sidecar._stall._settings = dataclasses.replace(pod.settings, **wanted)


async def health(pod: Pod) -> int:
    """Return what the kubelet's probe of the engine gets."""
    async with pod.session.get(pod.url + "/health") as response:
        return response.status


def asked(pod: Pod) -> int:
    """Return how often one token was asked for."""
    return len([body for _, _, body in pod.engine.calls if body.get("prompt") == [1]])


async def test_idle_engine_that_hangs_fails_its_health_check_and_its_pod_is_unready(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.generates.clear()
    watch(pod)
    state = await pod.until(lambda state: state.engine_stalled)
    assert (state.engine_healthy, state.open, state.adapters[0].loaded) == (False, False, False)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await health(pod) != 503:
            await pod.sidecar.compare()
    async with http_of(pod) as client:
        answer = await client.get("/readyz")
        assert (answer.status, "generates nothing" in await answer.text()) == (503, True)


async def test_engine_that_is_started_again_is_judged_anew(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.generates.clear()
    watch(pod)
    await pod.until(lambda state: state.engine_stalled)
    pod.engine.generates.set()
    pod.engine.restart()
    state = await pod.settled()
    assert (state.engine_stalled, state.open) == (False, True)
    assert await health(pod) == 200
    assert (await pod.ask("sql"))[0] == 200


async def test_engine_that_goes_on_is_healthy_again(pod: Pod) -> None:
    pod.want()
    boot = (await pod.settled()).engine_boot
    pod.engine.generates.clear()
    watch(pod)
    await pod.until(lambda state: state.engine_stalled)
    pod.engine.generates.set()
    state = await pod.settled()
    assert (state.engine_boot, state.open, await health(pod)) == (boot, True, 200)


async def test_engine_that_hangs_in_its_first_measurement_is_found(pod: Pod) -> None:
    pod.engine.generates.clear()
    watch(pod)
    pod.want(pod.adapter("sql"))
    assert not (await pod.until(lambda state: state.engine_stalled)).open
    assert asked(pod) == 0


async def test_busy_engine_that_makes_progress_is_not_stalled_however_long_an_answer_takes(pod: Pod) -> None:
    pod.want()
    await pod.settled()
    pod.engine.hold_answers.clear()
    watch(pod)
    await reached(pod, lambda: asked(pod) == 1)
    async with asyncio.timeout(DEADLINE_SECONDS):
        first = pod.sidecar._stall._moved
        while pod.sidecar._stall._moved < first + 3 * 0.3:
            pod.engine.generated += 1
            await pod.sidecar.compare()
            assert not pod.sidecar.state().engine_stalled
    assert asked(pod) == 1
    pod.engine.hold_answers.set()


async def test_idle_engine_is_asked_for_a_token_now_and_then_and_stays_healthy(pod: Pod) -> None:
    pod.want()
    await pod.settled()
    watch(pod)
    await reached(pod, lambda: asked(pod) >= 3)
    assert not pod.sidecar.state().engine_stalled


async def test_engine_that_gives_no_tokens_to_anybody_is_asked_now_and_then(pod: Pod) -> None:
    pod.engine.refuse_tokens = (400, "This model does not generate")
    pod.want()
    await pod.settled()
    watch(pod, stall_ask_seconds=0.05)
    await reached(pod, lambda: asked(pod) >= 1)
    watch(pod, stall_ask_seconds=3600.0)
    often, calls = asked(pod), len(pod.engine.calls)

    def looks() -> int:
        return len([path for _, path, _ in pod.engine.calls[calls:] if path == "/metrics"])

    await reached(pod, lambda: looks() > 10)
    # One question may have been on its way.
    assert asked(pod) <= often + 1
    watch(pod, stall_ask_seconds=0.05)
    await reached(pod, lambda: asked(pod) >= often + 2)
    assert not pod.sidecar.state().engine_stalled


async def test_engine_without_series_is_not_judged(pod: Pod) -> None:
    pod.engine.keeps_series = False
    pod.want()
    await pod.settled()
    pod.engine.generates.clear()
    watch(pod, stall_ask_seconds=0.0)
    pod.sidecar._stall._looked = float("-inf")
    engine = pod.sidecar._engine
    await reached(pod, lambda: engine.asked_at is not None and time.monotonic() - engine.asked_at > 3 * 0.3)
    assert not pod.sidecar.state().engine_stalled


def test_finding_that_is_not_repeated_ends_by_itself() -> None:
    now = [0.0]
    stall = Stall(lambda: now[0])
    stall.check()
    stall.hold(1e9)
    now[0] = LONGEST_SECONDS - 1
    with pytest.raises(Refused, match="generates nothing"):
        stall.check()
    now[0] = LONGEST_SECONDS
    stall.check()


async def test_only_the_sidecar_can_declare_a_stall(pod: Pod) -> None:
    pod.want()
    await pod.settled()
    for headers, expected in (({}, 403), ({"x-whetstone-token": "no"}, 401), (TOKEN, 200)):
        async with pod.session.post(pod.url + STALL_PATH, json={"seconds": 5}, headers=headers) as response:
            assert response.status == expected
    assert await health(pod) == 503
    assert (await pod.ask(BASE))[0] == 200
