"""The base is judged once an engine's start, by itself and by each record at hand; a wrong one gets no client."""

import dataclasses

import pytest
from support.adapters import lora_tensors
from support.fake_vllm import BASE, record_probe
from whetstone_api.pod_state import Effect
from whetstone_api.vocabulary import Reason
from whetstone_server import probe
from whetstone_server.base_parity import SANITY_ATTEMPTS

from .conftest import Pod
from .test_sidecar_faults import http_of


def measurements(pod: Pod) -> list[object]:
    """Return the prompts whose log-probabilities under the base were asked for."""
    asked = [body for _, _, body in pod.engine.calls if body.get("prompt_logprobs") is not None]
    return [prompt for body in asked if body["model"] == BASE for prompt in body["prompt"]]


@pytest.mark.parametrize(
    ("shift", "constant", "words"),
    [(float("nan"), False, "not finite"), (-3.0, True, "equally likely")],
    ids=["not finite", "constant"],
)
async def test_server_without_adapters_does_not_open_on_a_base_that_no_model_computes(
    pod: Pod, shift: float, constant: bool, words: str
) -> None:
    pod.engine.base_shift, pod.engine.base_is_constant = shift, constant
    pod.want()
    state = await pod.settled()
    assert (state.open, state.base.status, state.base.reason) == (False, "False", Reason.DIVERGENT)
    assert (await pod.ask(BASE))[0] == 503
    async with http_of(pod) as client:
        answer = await client.get("/readyz")
        told = await answer.text()
    assert answer.status == 503
    assert words in told
    assert "spec.engine.dtype" in told


async def test_pod_does_not_open_on_another_base_than_was_recorded(pod: Pod) -> None:
    pod.engine.base_shift = -2.0
    sql = pod.adapter("sql")
    pod.want(sql)
    state = await pod.settled()
    assert (state.open, state.base.status) == (False, "False")
    assert sql.served_name in state.base.message
    assert state.adapters[0].effect is Effect.VERIFIED


async def test_record_judges_the_base_though_its_adapter_is_refused(pod: Pod) -> None:
    pod.engine.base_shift = -2.0
    pod.want(pod.adapter("wide", config={"r": 64}))
    state = await pod.settled()
    assert (state.adapters[0].reason, state.base.status, state.open) == (Reason.RANK_TOO_HIGH, "False", False)


@pytest.mark.parametrize("first", ["good", "other"])
async def test_order_of_the_adapters_does_not_matter(pod: Pod, first: str) -> None:
    other = record_probe(effect=0.5, fingerprint=pod.fingerprint, dtype="bfloat16")
    adapters = [pod.adapter("good"), pod.adapter("other", alpha=40, probe=other)]
    pod.want(*sorted(adapters, key=lambda one: one.name != first))
    state = await pod.settled()
    assert (state.base.status, state.base.reason, state.open) == ("True", Reason.VERIFIED, True)


async def test_one_record_that_agrees_outweighs_one_that_does_not(pod: Pod) -> None:
    record = record_probe(effect=0.5, fingerprint=pod.fingerprint)
    case = record.cases[0]
    wrong = case.model_copy(update={"base_logprobs": [value - 2 for value in case.base_logprobs]})
    broken = record.model_copy(update={"cases": [wrong]})
    pod.want(pod.adapter("a", probe=broken, tensors=lora_tensors(fill=0.25)), pod.adapter("b"))
    state = await pod.settled()
    assert (state.base.status, state.open) == ("True", True)


async def test_adapter_added_later_is_told_about_and_shuts_nobody_out(pod: Pod) -> None:
    pod.engine.base_shift = -2.0
    pod.want()
    assert (await pod.settled()).base.status == "Unknown"
    pod.want(pod.adapter("sql"))
    state = await pod.settled()
    assert (state.base.status, state.open) == ("False", True)
    assert (await pod.ask(BASE))[0] == 200


async def test_base_is_judged_again_on_a_new_engine_and_only_then(pod: Pod) -> None:
    sql = pod.adapter("sql")
    pod.want(sql)
    await pod.settled()
    once = measurements(pod)
    assert len(once) == 2
    pod.want(sql, aliases={"prod": BASE})
    before = (await pod.settled()).engine_boot
    assert measurements(pod) == once
    pod.engine.base_shift = -2.0
    pod.engine.restart()
    state = await pod.until(lambda state: state.settled and state.engine_boot != before)
    assert (state.base.status, state.open) == ("False", False)


@pytest.mark.parametrize(
    ("status", "asked"), [(400, 1), (500, SANITY_ATTEMPTS)], ids=["too long a prompt", "an error of the engine's own"]
)
async def test_base_that_cannot_be_judged_keeps_nobody_out(pod: Pod, status: int, asked: int) -> None:
    pod.engine.refuse_probes = (status, "no")
    pod.want()
    state = await pod.settled()
    assert (state.base.status, state.open) == ("Unknown", True)
    assert "does not take the probe" in state.base.message
    assert len(measurements(pod)) == asked


async def test_engine_whose_answers_have_another_form_keeps_nobody_out(pod: Pod) -> None:
    pod.engine.speaks_otherwise = True
    pod.want()
    state = await pod.settled()
    assert (state.base.status, state.open) == ("Unknown", True)
    assert "the answer of /tokenize has another form than vLLM's" in state.base.message


async def test_adapter_of_the_engine_that_gives_no_numbers_is_divergent(pod: Pod) -> None:
    record = record_probe(effect=0.5, fingerprint=pod.fingerprint)
    broken = pod.adapter("broken", probe=record)
    pod.engine.shifts[broken.served_name] = float("inf")
    pod.want(broken)
    state = await pod.settled()
    assert (state.adapters[0].effect, state.adapters[0].message) == (Effect.DIVERGENT, probe.NOT_FINITE)
    assert (await pod.ask("broken"))[0] == 503


async def test_unload_of_what_the_engine_does_not_know_is_done(pod: Pod) -> None:
    pod.sidecar._settings = dataclasses.replace(pod.settings, drain_seconds=0.0)
    pod.want(pod.adapter("a"), pod.adapter("b"), pod.adapter("c"))
    await pod.settled()
    pod.engine.gone_before_unload.add(next(iter(pod.engine.adapters)))
    pod.want()
    state = await pod.settled()
    assert (state.settled, pod.engine.adapters) == (True, {})
    assert list(pod.settings.adapters_dir.iterdir()) == []
