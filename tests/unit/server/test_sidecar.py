"""The sidecar against an engine: what pods hold, what clients get, and what the operator is told."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from support.adapters import lineage, lora_tensors, make_adapter
from support.fake_vllm import BASE, record_probe
from whetstone_api.pod_state import DesiredAdapter, DesiredState, Effect, PodState
from whetstone_api.reports import ProgressReport
from whetstone_api.vocabulary import TOKEN_HEADER, Reason
from whetstone_artifacts.preflight import UNSUPPORTED
from whetstone_artifacts.reporting import Reporter
from whetstone_server.engine import Engine
from whetstone_server.sidecar import Sidecar
from whetstone_server.web import make_app

from .conftest import DEADLINE_SECONDS, Pod

TOKEN = {TOKEN_HEADER: "s3cret"}


async def test_server_without_adapters_opens(pod: Pod) -> None:
    pod.want()
    state = await pod.settled()
    assert (state.engine_healthy, state.open, state.base.status) == (True, True, "Unknown")
    assert (await pod.ask(None))[:2] == (200, BASE)


async def test_adapter_is_loaded_probed_and_answers(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql, aliases={"prod": sql.served_name, "plain": BASE})
    state = await pod.settled()
    assert (state.adapters[0].loaded, state.adapters[0].effect, state.adapters[0].reason) == (True, Effect.VERIFIED, "")
    assert (state.base.status, state.base.reason) == ("True", Reason.VERIFIED)
    assert state.aliases == {"prod": sql.served_name, "plain": BASE}
    assert state.adapters[0].load_seconds is not None
    for name in ("sql", "prod", sql.served_name):
        assert (await pod.ask(name))[:2] == (200, sql.served_name)
    assert (await pod.ask("plain"))[1] == BASE


async def test_engine_loads_from_a_copy_whose_path_holds_the_digest(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    folder = Path(pod.engine.adapters[sql.served_name])
    assert folder.parent == pod.settings.adapters_dir
    assert folder.name == f"{sql.served_name}-{sql.digest.removeprefix('sha256:')[8:24]}"
    assert all("load_inplace" not in body for _, _, body in pod.engine.calls)


async def test_no_request_passes_before_startup_adapters_are_there(pod: Pod) -> None:
    pod.engine.loads_go_on.clear()
    pod.want(pod.adapter("sql"))
    await pod.until(lambda state: state.engine_healthy and bool(state.engine_boot))
    assert (await pod.ask(BASE))[0] == 503
    pod.engine.loads_go_on.set()
    await pod.settled()
    assert (await pod.ask("sql"))[0] == 200


async def test_adapter_returns_after_engine_restart_and_none_is_asked_before(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql, aliases={"prod": sql.served_name})
    before = (await pod.settled()).engine_boot
    pod.engine.restart()
    answers = set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (answer := (await pod.ask("prod"))[:2])[0] != 200:
            answers.add(answer)
    assert answers <= {(503, None)}
    assert answer == (200, sql.served_name)
    state = await pod.until(lambda state: state.settled and state.engine_boot != before)
    assert state.adapters[0].effect is Effect.VERIFIED


async def test_adapter_that_somebody_unloaded_returns(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.adapters.clear()
    await pod.until(lambda state: sql.served_name in pod.engine.adapters and state.settled)
    assert (await pod.ask("sql"))[0] == 200


async def test_name_with_another_path_is_loaded_again(pod: Pod, tmp_path: Path) -> None:
    sql = pod.adapter("sql")
    make_adapter(tmp_path / "impostor", config={"lora_alpha": 1})
    pod.engine.adapters[sql.served_name] = str(tmp_path / "impostor")
    pod.want(sql)
    await pod.settled()
    assert Path(pod.engine.adapters[sql.served_name]).parent == pod.settings.adapters_dir


async def test_hot_added_bad_adapter_harms_nobody(pod: Pod) -> None:
    good = pod.adapter("good")
    pod.want(good)
    await pod.settled()
    bad = pod.adapter("bad", config={"r": 64})
    pod.want(bad, good)
    state = await pod.settled()
    assert state.open
    assert [(a.name, a.loaded, a.reason) for a in state.adapters] == [
        ("bad", False, Reason.RANK_TOO_HIGH),
        ("good", True, ""),
    ]
    assert (await pod.ask("good"))[0] == 200
    assert (await pod.ask("bad"))[0] == 503


@pytest.mark.parametrize("field", sorted(UNSUPPORTED))
async def test_refused_adapter_never_reaches_the_engine_and_harms_no_other(pod: Pod, field: str) -> None:
    bad, good = pod.adapter("bad", config={field: True}), pod.adapter("good")
    pod.want(bad, good)
    state = await pod.settled()
    assert [(a.reason, a.effect) for a in state.adapters] == [
        (Reason.ADAPTER_INVALID, Effect.PENDING),
        ("", Effect.VERIFIED),
    ]
    asked = [body["lora_name"] for _, path, body in pod.engine.calls if path == "/v1/load_lora_adapter"]
    assert asked == [good.served_name]
    assert (await pod.ask("good"))[0] == 200


async def test_slow_adapter_does_not_hold_back_routes_of_others(pod: Pod) -> None:
    first = pod.adapter("first")
    pod.want(first)
    await pod.settled()
    pod.engine.loads_go_on.clear()
    pod.want(first, pod.adapter("slow"), aliases={"prod": first.served_name})
    await pod.until(lambda state: state.aliases == {"prod": first.served_name})
    assert (await pod.ask("prod"))[:2] == (200, first.served_name)


async def test_optional_failure_opens_and_required_failure_does_not(pod: Pod) -> None:
    pod.want(pod.adapter("sql", config={"use_dora": True}, required=True))
    state = await pod.settled()
    assert (state.open, state.adapters[0].reason) == (False, Reason.ADAPTER_INVALID)
    pod.want(pod.adapter("sql", config={"use_dora": True}))
    assert (await pod.until(lambda state: state.open)).settled


def _tensors(value: float) -> dict[str, Any]:
    tensors = lora_tensors()
    for tensor in tensors.values():
        tensor[...] = np.float32(value)
    return tensors


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"config": {"bias": "all"}}, Reason.ADAPTER_INVALID),
        ({"tensors": _tensors(float("nan"))}, Reason.ADAPTER_INVALID),
        ({"history": lineage(fingerprint="sha256:other")}, Reason.BASE_MISMATCH),
        ({"tensors": lora_tensors(rank=32)}, Reason.RANK_TOO_HIGH),
    ],
)
async def test_user_errors_never_reach_the_engine(pod: Pod, options: dict[str, Any], reason: Reason) -> None:
    pod.want(pod.adapter("sql", **options))
    state = await pod.settled()
    assert state.adapters[0].reason == reason
    assert not [path for _, path, _ in pod.engine.calls if "load_lora" in path]


async def test_digest_mismatch_is_told_and_repaired_files_are_taken(pod: Pod) -> None:
    sql = pod.adapter("sql")
    weights = Path(sql.path) / "adapter_model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + b"\x01")
    pod.want(sql)
    assert (await pod.settled()).adapters[0].reason == Reason.DIGEST_MISMATCH
    weights.write_bytes(good)
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)
    assert (await pod.ask("sql"))[0] == 200


async def test_adapter_published_later_is_taken(pod: Pod) -> None:
    sql = pod.adapter("sql")
    shutil.move(sql.path, pod.folder / "aside")
    pod.want(sql)
    state = await pod.settled()
    assert (state.adapters[0].reason, state.open) == (Reason.ADAPTER_NOT_FOUND, True)
    shutil.move(pod.folder / "aside", sql.path)
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)


async def test_engines_refusal_is_told_and_tried_again(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.engine.refuse_loads[sql.served_name] = (500, "LoRA rank 4 is greater than max_lora_rank 1")
    pod.want(sql)
    state = await pod.settled()
    assert state.adapters[0].reason == Reason.LOAD_FAILED
    assert "greater than max_lora_rank 1 (HTTP 500)" in state.adapters[0].message
    pod.engine.refuse_loads.clear()
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)


async def test_adapter_that_does_nothing_is_not_routed(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.engine.without_effect.add(sql.served_name)
    pod.want(sql)
    state = await pod.settled()
    assert (state.adapters[0].loaded, state.adapters[0].effect) == (True, Effect.NO_EFFECT)
    assert state.adapters[0].reason == Reason.NO_EFFECT
    assert (await pod.ask("sql"))[0] == (await pod.ask(sql.served_name))[0] == 503


async def test_output_other_than_recorded_is_divergent(pod: Pod) -> None:
    sql = pod.adapter("sql", alpha=50, probe=record_probe(effect=1.5, fingerprint=pod.fingerprint))
    pod.want(sql)
    state = await pod.settled()
    assert (state.adapters[0].effect, state.adapters[0].reason) == (Effect.DIVERGENT, Reason.DIVERGENT)
    assert (await pod.ask("sql"))[0] == 503


async def test_engine_that_computes_another_base_is_seen(pod: Pod) -> None:
    pod.engine.base_shift = -2.0
    pod.want(pod.adapter("sql"))
    state = await pod.settled()
    assert (state.base.status, state.base.reason) == ("False", Reason.DIVERGENT)
    assert state.adapters[0].effect is Effect.VERIFIED


async def test_probe_takes_one_request_for_the_base_of_an_engine_and_one_an_adapter(pod: Pod) -> None:
    def probes() -> list[tuple[str, int]]:
        bodies = [body for _, path, body in pod.engine.calls if path == "/v1/completions"]
        return [(body["model"], len(body["prompt"])) for body in bodies]

    def adapter(name: str, alpha: int) -> DesiredAdapter:
        record = record_probe(effect=alpha / 100, fingerprint=pod.fingerprint, cases=3)
        return pod.adapter(name, alpha=alpha, probe=record)

    sql, chat = adapter("sql", 50), adapter("chat", 80)
    pod.want(sql)
    await pod.settled()
    assert sorted(probes()) == sorted([(BASE, 1), (BASE, 3), (sql.served_name, 3)])
    pod.want(sql, chat)
    assert [a.effect for a in (await pod.settled()).adapters] == [Effect.VERIFIED] * 2
    assert probes()[3:] == [(chat.served_name, 3)]
    pod.engine.restart()
    await pod.until(lambda state: not state.settled)
    await pod.settled()
    assert (BASE, 3) in probes()[4:]


@pytest.mark.parametrize(
    ("effect", "dtype"), [(0.5, "bfloat16"), (0.002, "float32")], ids=["other precision", "effect below noise"]
)
async def test_what_cannot_be_judged_is_unknown_and_served(pod: Pod, effect: float, dtype: str) -> None:
    record = record_probe(effect=effect, fingerprint=pod.fingerprint, dtype=dtype)
    pod.want(pod.adapter("sql", probe=record))
    state = await pod.settled()
    assert state.adapters[0].effect is Effect.UNKNOWN
    assert (await pod.ask("sql"))[0] == 200


@pytest.mark.parametrize(("silent", "effect"), [(False, Effect.CHANGED), (True, Effect.NO_EFFECT)])
async def test_adapter_without_probe_is_only_asked_for_a_change(pod: Pod, silent: bool, effect: Effect) -> None:
    sql = pod.adapter("sql", probe=None, history=None)
    if silent:
        pod.engine.without_effect.add(sql.served_name)
    pod.want(sql)
    state = await pod.settled()
    assert (state.adapters[0].effect, state.base.status) == (effect, "Unknown")


async def test_successor_takes_over_without_a_gap(pod: Pod) -> None:
    old, new = pod.adapter("sql", alpha=50), pod.adapter("sql", alpha=80)
    pod.want(old)
    await pod.settled()
    pod.engine.loads_go_on.clear()
    pod.want(new)
    await pod.until(lambda state: state.revision == 2 and not state.settled)
    assert (await pod.ask("sql"))[:2] == (200, old.served_name)
    pod.engine.loads_go_on.set()
    await pod.settled()
    assert (await pod.ask("sql"))[:2] == (200, new.served_name)
    assert list(pod.engine.adapters) == [new.served_name]
    assert len(list(pod.settings.adapters_dir.iterdir())) == 1


async def test_bad_successor_leaves_the_old_version_serving(pod: Pod) -> None:
    old, new = pod.adapter("sql", alpha=50), pod.adapter("sql", alpha=80)
    pod.engine.without_effect.add(new.served_name)
    pod.want(old)
    await pod.settled()
    pod.want(new)
    assert (await pod.settled()).adapters[0].effect is Effect.NO_EFFECT
    assert (await pod.ask("sql"))[:2] == (200, old.served_name)


async def test_removed_adapter_goes_only_after_its_last_answer(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    pod.engine.hold_answers.clear()
    request = asyncio.create_task(pod.ask("sql"))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while pod.engine.calls[-1][1] != "/v1/completions" and not pod.engine.guard._in_flight.total():
            await pod.sidecar.compare()
    pod.want()
    state = await pod.until(lambda state: state.revision == 2 and bool(pod.sidecar._leaving))
    assert not state.settled
    assert (await pod.ask("sql"))[0] == 404
    assert sql.served_name in pod.engine.adapters
    pod.engine.hold_answers.set()
    assert (await request)[:2] == (200, sql.served_name)
    await pod.settled()
    assert pod.engine.adapters == {}


async def test_new_sidecar_goes_on_where_the_old_one_stopped(pod: Pod) -> None:
    sql = pod.adapter("sql")
    desired = pod.want(sql, aliases={"prod": sql.served_name})
    await pod.settled()
    loads = len([path for _, path, _ in pod.engine.calls if path == "/v1/load_lora_adapter"])
    shutil.rmtree(sql.path)
    successor = Sidecar(engine=Engine(pod.session, pod.settings), settings=pod.settings)
    successor.set_desired(desired)
    await successor.compare()
    assert successor.state().open
    assert successor.state().aliases == {"prod": sql.served_name}
    assert (await pod.ask("prod"))[0] == 200
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not successor.state().settled:
            await successor.compare()
    assert successor.state().adapters[0].effect is Effect.VERIFIED
    assert len([path for _, path, _ in pod.engine.calls if path == "/v1/load_lora_adapter"]) == loads


async def test_mounted_file_is_enough_without_an_operator(pod: Pod) -> None:
    sql = pod.adapter("sql")
    desired = DesiredState(
        server="s",
        revision=7,
        base_name=BASE,
        model_path=str(pod.folder / "model"),
        max_rank=16,
        dtype="float32",
        adapters=[sql],
    )
    pod.settings.desired_file.write_text("{half")
    await pod.until(lambda state: state.engine_healthy)
    pod.settings.desired_file.write_text(desired.to_json())
    assert (await pod.settled()).revision == 7


async def test_only_newer_revisions_count(pod: Pod) -> None:
    desired = pod.want(pod.adapter("sql"))
    pod.want()
    assert not pod.sidecar.set_desired(desired)
    assert (await pod.settled()).adapters == []


async def test_unhealthy_engine_holds_nothing(pod: Pod) -> None:
    pod.want(pod.adapter("sql"))
    await pod.settled()
    pod.engine.healthy = False
    state = await pod.until(lambda state: not state.engine_healthy)
    assert (state.open, state.settled, state.adapters[0].loaded) == (False, False, False)
    pod.engine.healthy = True
    assert (await pod.settled()).adapters[0].loaded


async def test_http_needs_the_token_and_tells_readiness(pod: Pod) -> None:
    async with TestClient(TestServer(make_app(pod.sidecar, pod.settings))) as client:
        assert (await client.get("/v1/state")).status == 401
        assert (await client.get("/v1/state", headers={TOKEN_HEADER: "no"})).status == 401
        assert (await client.get("/readyz")).status == 503
        sql = pod.adapter("sql")
        desired = DesiredState(
            server="s",
            revision=3,
            base_name=BASE,
            model_path=str(pod.folder / "model"),
            max_rank=16,
            dtype="float32",
            adapters=[sql],
        )
        answer = await client.put("/v1/desired?wait=10", data=desired.to_json(), headers=TOKEN)
        state = PodState.model_validate(await answer.json())
        assert (state.settled, state.revision, state.adapters[0].effect) == (True, 3, Effect.VERIFIED)
        assert (await client.get("/readyz")).status == 200
        pod.engine.adapters.clear()
        fresh = PodState.model_validate(await (await client.get("/v1/state", headers=TOKEN)).json())
        assert not fresh.adapters[0].loaded or sql.served_name in pod.engine.adapters
        assert "whetstone_guard_open 1.0" in await (await client.get("/metrics")).text()
        assert (await client.put("/v1/desired", data="{}", headers=TOKEN)).status == 400


async def test_operator_is_told_of_changes_and_of_nothing_at_rest(pod: Pod) -> None:
    received: asyncio.Queue[Any] = asyncio.Queue()

    async def report(request: web.Request) -> web.Response:
        await received.put((request.headers["Authorization"], await request.json()))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/r", report)
    (pod.folder / "report-token").write_text("projected")
    async with TestServer(app) as server:
        reporter = Reporter(
            url=str(server.make_url("/r")), token_path=pod.folder / "report-token", interval_seconds=0.01
        )
        pod.sidecar._reporter = reporter
        pod.want(pod.adapter("sql"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await received.get() == ("Bearer projected", {"phase": "Changed"})
        await pod.settled()
        told = pod.sidecar._told
        for _ in range(3):
            await pod.sidecar.compare()
        assert pod.sidecar._told == told
        await asyncio.to_thread(reporter.close)


class Told:
    """A reporter that only counts."""

    def __init__(self) -> None:
        self.sent: list[bool] = []

    def send(self, report: ProgressReport, *, at_once: bool = False) -> None:
        self.sent.append(at_once)


async def test_what_an_answer_has_told_is_not_reported_and_the_end_of_work_is_not_held_back(pod: Pod) -> None:
    told = Told()
    first = pod.adapter("first")
    pod.want(first)
    await pod.settled()
    pod.sidecar._reporter = told  # type: ignore[assignment]
    pod.engine.loads_go_on.clear()
    pod.want(pod.adapter("sql"))
    assert not pod.sidecar.answer().settled
    loads = [path for _, path, _ in pod.engine.calls if "load_lora" in path]
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not loads:
            await pod.sidecar.compare()
            loads = [path for _, path, _ in pod.engine.calls if "load_lora" in path]
    assert told.sent == []
    pod.engine.loads_go_on.set()
    await pod.settled()
    assert told.sent[-1] is True
