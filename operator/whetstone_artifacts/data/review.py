"""A page with rows for people to look at, and to say of each whether it is good."""

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from whetstone_artifacts.data.example import Example
from whetstone_artifacts.data.formats import MARK, Message
from whetstone_artifacts.data.ladder import rung_of
from whetstone_artifacts.data.splitting import share_of
from whetstone_artifacts.report.policy import policy
from whetstone_artifacts.report.untrusted import Shown, shown


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A row that was drawn.

    Args:
        file: The file, as it was named.
        row: Line in it, from 1.
        example: The row.
    """

    file: str
    row: int
    example: Example


@dataclass(frozen=True, kw_only=True)
class _Turn:
    role: str
    text: Shown
    calls: list[Shown]
    marked: bool


def draw(rows: Iterable[Sampled], count: int, seed: int) -> list[Sampled]:
    """Return rows that were drawn at random, in the order of the files; the same for the same seed.

    What is drawn depends on each row's content alone, so that rows that are added put few others out.

    Args:
        rows: All rows; so many as are drawn are held in memory.
        count: Rows to draw.
        seed: Another seed draws others.
    """
    numbered = ((share_of(one.example.digest, seed), number, one) for number, one in enumerate(rows))
    drawn = heapq.nsmallest(count, numbered, key=lambda item: item[:2])
    return [one for _, _, one in sorted(drawn, key=lambda item: item[1])]


def review_page(rows: Sequence[Sampled], *, total: int) -> str:
    """Return a page that needs nothing but itself.

    Args:
        rows: Those that are shown.
        total: Rows that they were drawn from.

    Raises:
        ModuleNotFoundError: jinja2 is not installed.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = _text("review.css"), _text("review.js")
    views = [
        {
            "file": one.file,
            "row": one.row,
            "rung": rung_of(one.example.messages),
            "task": one.example.task or "",
            "turns": [_turn(message) for message in one.example.messages],
            "prompt": one.example.prompt,
            "rejected": [_turn(message) for message in one.example.rejected],
            "tools": [shown(json.dumps(tool, ensure_ascii=False, indent=1)) for tool in one.example.tools],
        }
        for one in rows
    ]
    return environment.from_string(_text("review.html.j2")).render(
        style=style, script=script, policy=policy(style=style, script=script), rows=views, total=total
    )


def _turn(message: Message) -> _Turn:
    calls = [
        f"{call['function']['name']} {json.dumps(call['function']['arguments'], ensure_ascii=False)}"
        for call in message.get("tool_calls", ())
    ]
    return _Turn(
        role=message["role"],
        text=shown(message["content"]),
        calls=[shown(call) for call in calls],
        marked=bool(message.get(MARK)),
    )


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text()
