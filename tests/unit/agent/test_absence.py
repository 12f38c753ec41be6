"""How trials wait for a model server that is away, in looptime: its clock jumps over every pause."""

import asyncio

import pytest
from whetstone_agent.agents.absence import Absence

pytestmark = pytest.mark.looptime
PATIENCE, PAUSE = 100.0, 10.0


class Server:
    """Is back from a certain time on; counts who asks."""

    def __init__(self, back_at: float = float("inf")) -> None:
        self.back_at = back_at
        self.asked = 0

    async def is_back(self) -> bool:
        self.asked += 1
        return now() >= self.back_at


def now() -> float:
    return asyncio.get_running_loop().time()


def absence(server: Server) -> Absence:
    return Absence(server.is_back, patience_seconds=PATIENCE, pause_seconds=PAUSE)


async def test_nobody_waits_or_asks_while_calls_are_answered() -> None:
    server = Server()
    found = absence(server)
    await found.over()
    found.begin()
    found.end()
    await found.over()
    assert (now(), server.asked) == (0, 0)


async def test_a_trial_waits_until_the_server_is_back() -> None:
    server = Server(back_at=35)
    found = absence(server)
    found.begin()
    await found.over()
    assert now() == 40
    await found.over()
    assert now() == 40


async def test_patience_is_one_for_all_trials_of_an_absence() -> None:
    server = Server()
    found = absence(server)
    found.begin()
    await asyncio.sleep(60)
    found.begin()
    await asyncio.gather(found.over(), found.over())
    assert now() == PATIENCE
    await found.over()
    assert now() == PATIENCE


async def test_the_next_absence_gets_patience_of_its_own() -> None:
    found = absence(Server())
    found.begin()
    await found.over()
    found.end()
    found.begin()
    await found.over()
    assert now() == 2 * PATIENCE


async def test_an_absence_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = absence(Server(back_at=25))
    found.begin()
    await asyncio.gather(found.over(), found.over())
    await found.over()
    assert [record.getMessage() for record in caplog.records] == [
        "the model server is away; trials wait for it, at most 100 s",
        "the model server is back after 30 s",
    ]
