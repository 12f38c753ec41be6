"""Seeded mutation of files and of values: what a broken disk, an old program or an attacker may leave."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    " ",
    "\x00",
    "\ud800",
    "../../etc/passwd",
    "-1",
    "1e999",
    "${HOME}",
    "🦙" * 40,
    "a" * 70_000,
    "[" * 200_000,
    [],
    {},
    [[[[[[]]]]]],
    {"a": {"b": {"c": None}}},
    [None],
)
"""Values that stand where nobody expects them."""
_SPECIAL = (b"", b"\x00", b"\xff\xfe", b"{", b"]" * 1000, b"\n" * 50)
_SPECIAL += (b'{"a":' * 2000, b"\x1f\x8b", b"PAR1", b"9" * 5000, b"[" * 200_000)


def mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return a file's content, changed at one to four places."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((1, 1, 2, 8, 64, 1 << 20)))
        change = rng.randrange(5)
        if change == 0:
            data[start:end] = rng.randbytes(end - start)
        elif change == 1:
            del data[start:end]
        elif change == 2:
            data[start:start] = data[start:end]
        elif change == 3:
            data[start:end] = rng.choice(_SPECIAL)
        elif data:
            place = rng.randrange(len(data))
            data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


def mutated_value(rng: random.Random, value: Any) -> Any:
    """Return a value of JSON with one to three of its parts replaced, removed, renamed or doubled."""
    result = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = _places(result)
        if not places:
            return copy.deepcopy(rng.choice(ODD))
        parent, key = rng.choice(places)
        rng.choice((_replace, _replace, _remove, _rename, _double))(rng, parent, key)
    return result


def mutated_json(rng: random.Random, content: bytes) -> bytes:
    """Return JSON with mutated parts, or now and then mutated as a file."""
    if rng.random() < 0.3:
        return mutated_bytes(rng, content)
    return json.dumps(mutated_value(rng, json.loads(content))).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in _places(inner)]


def _replace(rng: random.Random, parent: Any, key: Any) -> None:
    parent[key] = copy.deepcopy(rng.choice(ODD))


def _remove(_: random.Random, parent: Any, key: Any) -> None:
    del parent[key]


def _rename(rng: random.Random, parent: Any, key: Any) -> None:
    if isinstance(parent, dict):
        parent[f"{key}{rng.choice('sX_. ')}"] = parent.pop(key)
    else:
        parent.append(parent[key])


def _double(_: random.Random, parent: Any, key: Any) -> None:
    double: Callable[[], Any] = lambda: copy.deepcopy(parent[key])  # noqa: E731
    parent[key] = [double(), double()]
