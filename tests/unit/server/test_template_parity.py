"""The engine's chat template against what the trainer's made of the same conversations."""

import pytest
from support.fake_vllm import record_probe
from whetstone_api.adapter_artifact import Probe
from whetstone_api.pod_state import Effect

from .conftest import Pod


def record(pod: Pod) -> Probe:
    """Return a record with two conversations."""
    return record_probe(effect=0.5, fingerprint=pod.fingerprint, conversations=("ls", "what is {this}?"))


async def test_conversations_that_are_rendered_alike_are_parity(pod: Pod) -> None:
    pod.want(pod.adapter("sql", probe=record(pod)))
    [adapter] = (await pod.settled()).adapters
    assert (adapter.template.status, adapter.template.message) == ("True", "")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("<{role}>\n{content}</>", "conversation 1 becomes 12 tokens, in training 11; they differ from token 6 on"),
        ("<{role}>{content}", "conversation 1 becomes 8 tokens, in training 11; they differ from token 8 on"),
        (None, "the engine does not render conversation 1: As of transformers v4.44"),
    ],
    ids=["other text", "shorter text", "no template"],
)
async def test_adapter_under_another_template_is_served_and_told(pod: Pod, template: str | None, words: str) -> None:
    pod.engine.chat_template = template
    pod.want(pod.adapter("sql", probe=record(pod)))
    [adapter] = (await pod.settled()).adapters
    assert (adapter.effect, adapter.template.status) == (Effect.VERIFIED, "False")
    assert words in adapter.template.message
    assert (await pod.ask("sql"))[0] == 200


async def test_record_without_conversations_says_nothing_of_the_template(pod: Pod) -> None:
    pod.engine.chat_template = None
    pod.want(pod.adapter("sql"), pod.adapter("elsewhere", alpha=40, probe=None, history=None))
    assert [adapter.template.status for adapter in (await pod.settled()).adapters] == ["Unknown", "Unknown"]


async def test_template_is_compared_again_on_a_new_engine(pod: Pod) -> None:
    pod.want(pod.adapter("sql", probe=record(pod)))
    before = (await pod.settled()).engine_boot
    pod.engine.chat_template = "{content}"
    pod.engine.restart()
    state = await pod.until(lambda state: state.settled and state.engine_boot != before)
    assert state.adapters[0].template.status == "False"
