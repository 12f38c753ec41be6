"""How requests are dealt out to the targets of an alias: in proportion, and a session always to the same one."""

import random
from collections import Counter

import pytest
from whetstone_server.guard.whetstone_guard.splits import Share, choose, session_of

REQUESTS = 20_000
CRITICAL = 13.8
"""Chi-square that a fair deal to three targets exceeds once in a thousand times."""
SHARES = [Share("x", "base", 50), Share("a", "a--1", 30), Share("b", "b--1", 20)]


def never() -> float:
    raise AssertionError("a session is never dealt out at random")


def deal(shares: list[Share], *, alias: str = "prod") -> list[str]:
    """Return the target of each of many sessions."""
    return [choose(alias, shares, session=f"user-{one}", draw=never).adapter for one in range(REQUESTS)]


def chi_square(counts: Counter[str], shares: list[Share]) -> float:
    total = sum(share.weight for share in shares)
    expected = {share.adapter: REQUESTS * share.weight / total for share in shares}
    return sum((counts[name] - number) ** 2 / number for name, number in expected.items())


def test_sessions_are_dealt_out_by_weight() -> None:
    assert chi_square(Counter(deal(SHARES)), SHARES) < CRITICAL


def test_requests_without_session_are_dealt_out_by_weight() -> None:
    draw = random.Random(7).random
    counts = Counter(choose("prod", SHARES, session=None, draw=draw).adapter for _ in range(REQUESTS))
    assert chi_square(counts, SHARES) < CRITICAL


def test_every_replica_and_release_deals_a_session_to_the_same_target() -> None:
    known = "".join(deal(SHARES)[:40])
    assert known == "xxbbbxxabbbxbxabbaxxbaaxaxbaxxabxxaxaxbx"
    assert deal(list(reversed(SHARES)))[:40] == deal(SHARES)[:40]


def test_session_stays_through_a_new_version() -> None:
    renewed = [Share(share.adapter, f"{share.adapter}--2", share.weight) for share in SHARES]
    assert deal(renewed) == deal(SHARES)


def test_changed_weight_moves_only_the_sessions_that_it_must() -> None:
    before = deal([Share("a", "a--1", 90), Share("b", "b--1", 10)])
    after = deal([Share("a", "a--1", 80), Share("b", "b--1", 20)])
    moved = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {("a", "b")}


def test_two_aliases_deal_out_independently() -> None:
    halves = [Share("a", "a--1", 1), Share("b", "b--1", 1)]
    same = sum(one == two for one, two in zip(deal(halves), deal(halves, alias="other"), strict=True))
    assert 0.48 < same / REQUESTS < 0.52


def test_target_without_weight_gets_nothing() -> None:
    shares = [Share("a", "a--1", 0), Share("b", "b--1", 1), Share("c", "c--1", 0)]
    assert set(deal(shares)) == {"b"}
    for value in (0.0, 0.5, 0.9999999):
        assert choose("prod", shares, session=None, draw=iter([value]).__next__).adapter == "b"


@pytest.mark.parametrize(
    ("headers", "request_", "session"),
    [
        ([(b"X-Whetstone-Session", b"s1")], {"user": "u1"}, "s1"),
        ([], {"user": "u1"}, "u1"),
        ([(b"x-whetstone-session", b"")], {"user": "u1"}, "u1"),
        ([], {"user": ""}, None),
        ([], {"user": 7}, None),
        ([], {}, None),
    ],
)
def test_session_is_the_header_else_the_user(
    headers: list[tuple[bytes, bytes]], request_: dict[str, object], session: str | None
) -> None:
    assert session_of(headers, request_) == session
