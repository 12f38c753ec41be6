"""Events: their names are in the order of time, and what is told again and again is counted up."""

from typing import Any, cast

import pytest
from support.hand_clock import HandClock
from unit.operator.objects import NOW, model_server
from whetstone_api.vocabulary import Reason
from whetstone_operator.kinds import key_of
from whetstone_operator.kube import Kube
from whetstone_operator.runtime.events import NORMAL, EventRecorder


class Wrote:
    """Takes Events down as the API server would."""

    def __init__(self) -> None:
        self.clock = HandClock(NOW)
        self.events: list[dict[str, Any]] = []

    async def record_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def story(self) -> list[str]:
        """Return the reasons in the order in which kubectl lists them: by the names of the Events, each once."""
        return [event["reason"] for _, event in sorted({one["metadata"]["name"]: one for one in self.events}.items())]


@pytest.fixture
def wrote() -> Wrote:
    return Wrote()


@pytest.fixture
def recorder(wrote: Wrote) -> EventRecorder:
    return EventRecorder(cast("Kube", wrote), clock=wrote.clock, instance="operator-1")


async def tell(recorder: EventRecorder, *reasons: Reason, message: str = "words", uid: str = "u1") -> None:
    server = model_server()
    server = server.model_copy(update={"metadata": server.metadata.model_copy(update={"uid": uid})})
    for reason in reasons:
        await recorder.record(server, kind=NORMAL, reason=reason, message=message)


async def test_events_are_in_order_even_where_the_clock_stands_still(recorder: EventRecorder, wrote: Wrote) -> None:
    story = [Reason.CLAIM_NOT_FOUND, Reason.PROGRESSING, Reason.ENGINE_STARTING, Reason.SERVING, Reason.SCALED_TO_ZERO]
    await tell(recorder, *story)
    assert wrote.story() == story
    wrote.clock.jump(hours=-2)
    await tell(recorder, Reason.NO_EFFECT)
    assert wrote.story()[-1] == Reason.NO_EFFECT


async def test_what_comes_back_is_told_again_and_what_stays_is_counted_up(
    recorder: EventRecorder, wrote: Wrote
) -> None:
    await tell(recorder, Reason.SERVING, Reason.SERVING, Reason.PROGRESSING, Reason.SERVING)
    assert len(wrote.events) == 4
    assert wrote.story() == [Reason.SERVING, Reason.PROGRESSING, Reason.SERVING]


async def test_an_object_that_flaps_does_not_fill_the_cluster_with_events(
    recorder: EventRecorder, wrote: Wrote
) -> None:
    for _ in range(100):
        wrote.clock.go(seconds=10)
        await tell(recorder, Reason.SERVING, Reason.INTERNAL_ERROR)
    assert len(wrote.story()) == 10
    wrote.clock.jump(hours=-1)
    wrote.clock.go(hours=1)
    await tell(recorder, Reason.SERVING)
    assert len(wrote.story()) == 11


async def test_equal_words_about_two_objects_are_two_events(recorder: EventRecorder, wrote: Wrote) -> None:
    await tell(recorder, Reason.SERVING)
    await tell(recorder, Reason.SERVING, uid="u2")
    await tell(recorder, Reason.SERVING, message="other words")
    assert len(wrote.story()) == 3


async def test_what_was_told_of_an_object_is_forgotten_once_it_is_gone(recorder: EventRecorder, wrote: Wrote) -> None:
    await tell(recorder, Reason.SERVING)
    await tell(recorder, Reason.SERVING)
    assert len(wrote.story()) == 1
    recorder.forget(key_of(model_server()))
    await tell(recorder, Reason.SERVING)
    assert len(wrote.story()) == 2
