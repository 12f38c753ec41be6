"""What the sidecar does while things break around it: restarts, strangers, clients that never leave."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from support.fake_vllm import BASE
from whetstone_api.pod_state import DesiredState, Effect, PodState
from whetstone_api.vocabulary import REPORT_TOKEN_PATH, TOKEN_HEADER, Reason
from whetstone_server import engine
from whetstone_server.engine import Engine
from whetstone_server.settings import read_settings
from whetstone_server.sidecar import MISSES_ALLOWED, Sidecar
from whetstone_server.web import make_app

from .conftest import DEADLINE_SECONDS, TOKEN, Pod


def loads(pod: Pod) -> list[str]:
    """Return the names that were asked to be loaded, in order."""
    return [body["lora_name"] for _, path, body in pod.engine.calls if path == "/v1/load_lora_adapter"]


async def reached(pod: Pod, condition: Any) -> None:
    """Compare again and again until a condition on the engine holds."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await pod.sidecar.compare()


@contextlib.asynccontextmanager
async def http_of(pod: Pod) -> AsyncIterator[TestClient[Any, Any]]:
    """The sidecar's own HTTP server."""
    async with TestClient(TestServer(make_app(pod.sidecar, pod.settings))) as client:
        yield client


async def test_readiness_waits_for_startup_adapters_and_for_no_later_one(pod: Pod) -> None:
    good, bad = pod.adapter("good", required=True), pod.adapter("bad", required=True, config={"r": 64})
    pod.engine.loads_go_on.clear()
    pod.want(good)
    await reached(pod, lambda: loads(pod) == [good.served_name])
    async with http_of(pod) as client:
        assert (await client.get("/readyz")).status == 503
        pod.engine.loads_go_on.set()
        await pod.settled()
        assert (await client.get("/readyz")).status == 200
        pod.want(good, bad)
        await pod.settled()
        assert (await client.get("/readyz")).status == 200


async def test_engine_that_must_be_alone_for_a_probe_is_and_clients_only_wait(pod: Pod) -> None:
    pod.engine.fragile = True
    pod.engine.restart()
    pod.want()
    await pod.settled()
    asked = {"model": BASE, "prompt": "x", "stream": True}
    statuses: list[int] = []

    async def client() -> None:
        while True:
            async with pod.session.post(pod.url + "/v1/completions", json=asked) as response:
                await response.read()
                statuses.append(response.status)

    clients = [asyncio.create_task(client()) for _ in range(4)]
    good = pod.adapter("good")
    pod.want(good)
    state = await pod.settled()
    for one in clients:
        one.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert [adapter.effect for adapter in state.adapters] == [Effect.VERIFIED]
    assert not pod.engine.ended
    assert set(statuses) == {200}


async def become_fragile(pod: Pod) -> None:
    """Let the pod have an engine that probes must be alone with, and a sidecar that soon gives a probe up."""
    pod.engine.fragile = True
    pod.engine.restart()
    pod.sidecar._loader._settings = dataclasses.replace(pod.settings, patience_seconds=0.01)
    pod.want()
    await pod.settled()


@pytest.mark.parametrize(
    ("options", "effect"),
    [({}, Effect.VERIFIED), ({"probe": None, "history": None}, Effect.CHANGED)],
    ids=["recorded", "trained elsewhere"],
)
async def test_probe_that_finds_no_quiet_moment_lets_clients_go_on_and_tries_again(
    pod: Pod, options: dict[str, Any], effect: Effect
) -> None:
    await become_fragile(pod)
    pod.engine.end_streams.clear()
    asked = {"model": BASE, "prompt": "x", "stream": True}
    async with pod.session.post(pod.url + "/v1/completions", json=asked) as stream:
        pod.want(pod.adapter("good", **options))
        await pod.until(lambda state: any(held.attempts > 1 for held in pod.sidecar._held.values()))
        async with pod.session.post(pod.url + "/v1/completions", json={"model": BASE, "prompt": "x"}) as other:
            assert other.status == 200
        pod.engine.end_streams.set()
        await stream.read()
    state = await pod.settled()
    assert [adapter.effect for adapter in state.adapters] == [effect]
    assert not pod.engine.ended


async def test_probe_of_a_sidecar_that_was_too_slow_to_hold_clients_back_is_tried_again(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    await become_fragile(pod)
    with monkeypatch.context() as slow:
        slow.setattr(engine, "HOLD_SECONDS", 0.0)
        pod.want(pod.adapter("good"))
        await pod.until(lambda state: any(held.attempts > 1 for held in pod.sidecar._held.values()))
    state = await pod.settled()
    assert [adapter.effect for adapter in state.adapters] == [Effect.VERIFIED]


async def test_unready_pod_says_which_adapters_are_missing_and_why(pod: Pod) -> None:
    bad, silent = pod.adapter("bad", required=True, config={"r": 64}), pod.adapter("silent", required=True)
    pod.engine.without_effect.add(silent.served_name)
    pod.want(bad, silent)
    await pod.settled()
    async with http_of(pod) as client:
        answer = await client.get("/readyz")
        assert answer.status == 503
        words = await answer.text()
    assert f"{bad.served_name}: {Reason.RANK_TOO_HIGH}" in words
    assert f"{silent.served_name}: {Reason.NO_EFFECT}" in words


async def test_pod_is_unready_from_a_restart_of_the_engine_until_its_adapters_are_back(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    before = (await pod.settled()).engine_boot
    pod.engine.loads_go_on.clear()
    pod.engine.restart()
    state = await pod.until(lambda state: state.engine_boot != before)
    assert (state.open, state.adapters[0].loaded, state.adapters[0].effect) == (False, False, Effect.PENDING)
    pod.engine.loads_go_on.set()
    assert (await pod.settled()).open
    assert (await pod.ask("sql"))[:2] == (200, sql.served_name)


async def test_restart_in_the_middle_of_a_load_gives_one_more_load(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.engine.loads_go_on.clear()
    pod.want(sql)
    await reached(pod, lambda: len(loads(pod)) == 1)
    before = pod.sidecar.state().engine_boot
    pod.engine.restart()
    await pod.until(lambda state: state.engine_boot != before)
    await reached(pod, lambda: len(loads(pod)) == 2)
    pod.engine.loads_go_on.set()
    assert (await pod.settled()).adapters[0].effect is Effect.VERIFIED
    assert loads(pod) == [sql.served_name] * 2


async def test_load_that_ends_when_nobody_wants_it_any_more_is_undone(pod: Pod) -> None:
    pod.engine.loads_go_on.clear()
    pod.want(pod.adapter("sql"))
    await reached(pod, lambda: len(loads(pod)) == 1)
    pod.want()
    assert (await pod.settled()).adapters == []
    pod.engine.loads_go_on.set()
    await reached(pod, lambda: any(path == "/v1/unload_lora_adapter" for _, path, _ in pod.engine.calls))
    await reached(pod, lambda: pod.engine.adapters == {})


async def test_adapter_of_a_stranger_goes_and_the_folder_of_ours_stays(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    folder = Path(pod.engine.adapters[sql.served_name])
    pod.engine.adapters["stranger"] = str(folder)
    await reached(pod, lambda: list(pod.engine.adapters) == [sql.served_name])
    await pod.settled()
    assert folder in list(pod.settings.adapters_dir.iterdir())


async def test_request_without_end_holds_an_unload_back_for_a_bounded_time(pod: Pod) -> None:
    pod.sidecar._settings = dataclasses.replace(pod.settings, drain_seconds=0.2)
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.hold_answers.clear()
    request = asyncio.create_task(pod.ask("sql"))
    await reached(pod, lambda: pod.engine.guard._in_flight.total() == 1)
    pod.want()
    assert (await pod.settled()).adapters == []
    assert pod.engine.adapters == {}
    assert not request.done()
    pod.engine.hold_answers.set()
    await request


async def test_client_that_leaves_frees_its_adapter(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.hold_answers.clear()
    request = asyncio.create_task(pod.ask("sql"))
    await reached(pod, lambda: pod.engine.guard._in_flight.total() == 1)
    pod.want()
    request.cancel()
    assert (await pod.settled()).adapters == []
    assert pod.engine.adapters == {}


async def test_no_request_fails_while_a_name_moves_to_new_weights(pod: Pod) -> None:
    old, new = pod.adapter("sql", alpha=50), pod.adapter("sql", alpha=80)
    pod.want(old, aliases={"prod": old.served_name})
    await pod.settled()
    pod.want(new, aliases={"prod": new.served_name})
    answers: list[tuple[int, str | None]] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        while answers[-2:] != [(200, new.served_name)] * 2:
            answers += [(await pod.ask(name))[:2] for name in ("sql", "prod")]
    assert {status for status, _ in answers} == {200}
    for way in (answers[::2], answers[1::2]):
        served = [served for (_, served), _ in itertools.groupby(way)]
        assert served in ([old.served_name, new.served_name], [new.served_name])


async def test_busy_engine_may_miss_health_checks_before_it_counts_as_gone(pod: Pod) -> None:
    wanted = pod.want(pod.adapter("sql"))
    await pod.settled()
    alive = Engine(pod.session, pod.settings)
    nobody = Engine(pod.session, dataclasses.replace(pod.settings, engine_url="http://127.0.0.1:1"))
    other = Sidecar(engine=alive, settings=pod.settings)
    other.set_desired(wanted)
    await other.compare()
    other._engine = nobody
    for _ in range(MISSES_ALLOWED):
        await other.compare()
        assert other.state().engine_healthy
    await other.compare()
    assert not other.state().engine_healthy
    other._engine = alive
    await other.compare()
    assert other.state().engine_healthy
    await other.stop()


async def test_log_probabilities_that_are_no_numbers_are_not_routed(pod: Pod) -> None:
    pod.engine.base_shift = float("nan")
    pod.want(pod.adapter("sql"))
    state = await pod.settled()
    assert (state.adapters[0].effect, state.base.status) == (Effect.DIVERGENT, "False")
    assert (await pod.ask("sql"))[0] == 503


async def test_probe_that_is_too_long_for_the_engine_leaves_the_adapter_unknown_and_served(pod: Pod) -> None:
    pod.engine.refuse_probes = (400, "This model's maximum context length is 8 tokens")
    pod.want(pod.adapter("sql"))
    state = await pod.settled()
    assert state.adapters[0].effect is Effect.UNKNOWN
    assert "maximum context length" in state.adapters[0].message
    assert (await pod.ask("sql"))[0] == 200


async def test_probe_on_which_the_engine_fails_is_tried_again_without_another_load(pod: Pod) -> None:
    pod.engine.refuse_probes = (500, "EngineCore encountered an issue")
    sql = pod.adapter("sql")
    pod.want(sql)
    state = await pod.settled()
    assert (state.adapters[0].reason, state.adapters[0].effect) == (Reason.LOAD_FAILED, Effect.PENDING)
    assert (await pod.ask("sql"))[0] == 503
    pod.engine.refuse_probes = None
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)
    assert loads(pod) == [sql.served_name]


async def test_files_that_were_refused_are_not_read_again_until_they_change(pod: Pod) -> None:
    bad = pod.adapter("bad", config={"r": 64})
    pod.want(bad)
    await pod.settled()
    held = pod.sidecar._held[bad.served_name]
    for _ in range(3):
        check = held.not_before
        await reached(pod, lambda last=check: held.not_before != last)
    assert held.attempts == 1


async def test_older_desired_state_over_http_is_answered_with_the_newer_one(pod: Pod) -> None:
    pod.revision = 6
    newer = pod.want(pod.adapter("sql"))
    await pod.settled()
    older = newer.model_copy(update={"revision": 6, "adapters": []})
    async with http_of(pod) as client:
        answer = await client.put("/v1/desired", data=older.to_json(), headers=TOKEN)
        state = PodState.model_validate(await answer.json())
    assert (state.revision, [adapter.name for adapter in state.adapters]) == (7, ["sql"])


async def test_sidecar_that_starts_again_goes_on_from_what_it_was_told_last(pod: Pod) -> None:
    sql = pod.adapter("sql")
    older = pod.want()
    pod.settings.desired_file.write_text(older.to_json())
    pod.want(sql)
    await pod.until(lambda state: state.settled and len(state.adapters) == 1)
    async with ClientSession() as session:
        successor = Sidecar(engine=Engine(session, pod.settings), settings=pod.settings)
        await successor.compare()
        assert (successor.state().revision, [one.name for one in successor.state().adapters]) == (2, ["sql"])
        newer = pod.want()
        pod.settings.desired_file.write_text(newer.model_copy(update={"revision": 9}).to_json())
        await successor.compare()
        assert (successor.state().revision, successor.state().adapters) == (9, [])
        await successor.stop()


@pytest.mark.parametrize("headers", [{}, {TOKEN_HEADER: ""}, {TOKEN_HEADER: "no"}])
async def test_desired_state_needs_the_token(pod: Pod, headers: dict[str, str]) -> None:
    desired = DesiredState(server="s", revision=9, base_name=BASE, model_path="/m", max_rank=1, dtype="auto")
    async with http_of(pod) as client:
        assert (await client.put("/v1/desired", data=desired.to_json(), headers=headers)).status == 401
        pod.settings.token_file.unlink()
        assert (await client.put("/v1/desired", data=desired.to_json(), headers=headers)).status == 401
    assert pod.sidecar.state().revision == 0


def test_settings_come_from_the_environment() -> None:
    given = read_settings({"WHETSTONE_ENGINE_URL": "http://e:1/", "WHETSTONE_ADAPTERS_DIR": "/a"})
    assert (given.engine_url, given.adapters_dir) == ("http://e:1", Path("/a"))
    default = read_settings({})
    assert (default.engine_url, str(default.report_token_file)) == ("http://127.0.0.1:8000", REPORT_TOKEN_PATH)
