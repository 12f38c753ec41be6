"""Which refusals of the API server are answered by another try, in looptime: its clock jumps over every pause."""

import asyncio
from typing import Any

import pytest
from whetstone_operator.transport import KubeError, Transport

pytestmark = pytest.mark.looptime


class Answer:
    """An answer of the API server."""

    def __init__(self, status: int, text: str = "{}", **headers: str) -> None:
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._text = text

    async def read(self) -> bytes:
        return self._text.encode()


class Client:
    """Answers with what a test has laid out, the last one again and again; an error is a connection that is lost."""

    def __init__(self, *answers: Answer | OSError) -> None:
        self._answers = list(answers)
        self.times: list[float] = []

    async def param_serialize(self, **parts: Any) -> tuple[Any, ...]:
        return tuple(parts.values())

    async def call_api(self, *_: Any, **__: Any) -> Answer:
        self.times.append(asyncio.get_running_loop().time())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


def busy() -> Answer:
    return Answer(429, '{"message": "too many"}', Retry_After="3")


async def test_busy_server_is_asked_again_when_it_says() -> None:
    client = Client(busy(), busy(), Answer(200, "done"))
    assert await Transport(client).request("POST", "/x") == b"done"
    assert client.times == pytest.approx([0, 3, 6])


async def test_server_that_stays_busy_is_left_alone_after_five_tries() -> None:
    client = Client(busy())
    with pytest.raises(KubeError, match="too many") as refused:
        await Transport(client).request("GET", "/x")
    assert refused.value.status == 429
    assert len(client.times) == 5


async def test_refusal_without_a_time_is_the_answer() -> None:
    client = Client(Answer(429))
    with pytest.raises(KubeError):
        await Transport(client).request("GET", "/x")
    assert len(client.times) == 1


async def test_token_is_read_again_once_when_it_is_not_known_any_more() -> None:
    renewed: list[float] = []
    client = Client(Answer(401), Answer(200, "done"))
    assert await Transport(client, lambda: renewed.append(0)).request("GET", "/x") == b"done"
    client = Client(Answer(401))
    with pytest.raises(KubeError):
        await Transport(client, lambda: renewed.append(0)).request("GET", "/x")
    assert len(client.times) == len(renewed) == 2


@pytest.mark.parametrize("status", [401, 403, 404, 409, 500, 503])
async def test_other_refusals_are_told_at_once(status: int) -> None:
    client = Client(Answer(status, '{"message": "no"}'))
    with pytest.raises(KubeError, match="no") as refused:
        await Transport(client).request("GET", "/x")
    assert (refused.value.status, len(client.times)) == (status, 1)


def without_right() -> Answer:
    user = "system:serviceaccount:whetstone-system:whetstone-operator"
    words = f'services \\"a\\" is forbidden: User \\"{user}\\" cannot patch resource \\"services\\" in API group \\"\\"'
    return Answer(403, f'{{"message": "{words}"}}')


async def lost_connection(client: Client) -> Transport:
    """Return a transport that has just lost its connection."""
    transport = Transport(client)
    with pytest.raises(KubeError, match="no answer"):
        await transport.request("GET", "/x")
    client.times.clear()
    return transport


async def test_want_of_rights_is_not_believed_while_the_server_has_just_come_back() -> None:
    client = Client(ConnectionResetError("reset"), without_right(), without_right(), Answer(200, "done"))
    transport = await lost_connection(client)
    assert await transport.request("PATCH", "/x") == b"done"
    assert client.times == pytest.approx([0, 1, 2])


async def test_want_of_rights_that_lasts_is_told_within_a_quarter_of_a_minute() -> None:
    client = Client(ConnectionResetError("reset"), without_right())
    transport = await lost_connection(client)
    with pytest.raises(KubeError, match="cannot patch resource") as refused:
        await transport.request("PATCH", "/x")
    assert refused.value.status == 403
    assert 14 <= client.times[-1] <= 16
    tries = len(client.times)
    with pytest.raises(KubeError):
        await transport.request("PATCH", "/x")
    assert len(client.times) == tries + 1


async def test_refusal_by_a_quota_is_told_at_once_though_a_connection_was_lost() -> None:
    client = Client(
        ConnectionResetError("reset"), Answer(403, '{"message": "pods is forbidden: exceeded quota: small"}')
    )
    transport = await lost_connection(client)
    with pytest.raises(KubeError, match="exceeded quota"):
        await transport.request("POST", "/x")
    assert len(client.times) == 1


async def test_date_of_every_answer_is_told() -> None:
    heard: list[str | None] = []
    client = Client(Answer(200, Date="Thu, 01 Jan 2026 12:00:00 GMT"), Answer(404, Date="later"))
    transport = Transport(client, hear=heard.append)
    await transport.request("GET", "/x")
    with pytest.raises(KubeError):
        await transport.request("GET", "/x")
    assert heard == ["Thu, 01 Jan 2026 12:00:00 GMT", "later"]
