"""What is heard of our objects: it is kept, it makes due, and what was read at the start is not done twice."""

from typing import Any

import pytest
from whetstone_operator.handlers import Listener
from whetstone_operator.kinds import BENCHMARK_RUN, MODEL_SERVER, Key
from whetstone_operator.runtime.object_store import ObjectStore
from whetstone_operator.runtime.references import References

SERVER = Key(MODEL_SERVER.plural, "team", "server")
RUN = Key(BENCHMARK_RUN.plural, "team", "run")


class World:
    """A listener with one server that was read at version 5, and a run that depends on it."""

    def __init__(self) -> None:
        self.due: list[Key] = []
        self.store = ObjectStore()
        references = References()
        references.declare(RUN, frozenset({SERVER}))
        self._listener = Listener(mark=self.due.append, references=references, store=self.store)
        self._listener.read(MODEL_SERVER.plural, server("5"))

    def hear(self, kind: str | None, version: str) -> list[Key]:
        """Let it hear of the server; return what that makes due."""
        self.due.clear()
        self._listener.hear(MODEL_SERVER.plural, {"type": kind, "object": server(version)})
        return sorted(self.due)


def server(version: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "server", "uid": "u", "resourceVersion": version}}


@pytest.fixture
def world() -> World:
    return World()


def test_list_of_a_watch_that_repeats_what_was_read_makes_nothing_due(world: World) -> None:
    assert world.hear(None, "5") == []
    assert world.store.get(MODEL_SERVER, "team", "server") is not None


def test_object_that_changed_between_the_lists_is_due(world: World) -> None:
    assert world.hear(None, "6") == [RUN, SERVER]


def test_change_is_due_and_ends_what_was_read(world: World) -> None:
    assert world.hear("MODIFIED", "5") == [RUN, SERVER]
    assert world.hear(None, "5") == [RUN, SERVER]


def test_second_list_of_a_watch_makes_due(world: World) -> None:
    world.hear(None, "5")
    assert world.hear(None, "5") == [RUN, SERVER]


def test_deleted_object_is_forgotten_and_its_dependents_are_due(world: World) -> None:
    world.hear(None, "5")
    assert world.hear("DELETED", "7") == [RUN, SERVER]
    assert world.store.get(MODEL_SERVER, "team", "server") is None
