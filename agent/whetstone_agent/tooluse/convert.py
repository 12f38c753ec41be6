"""From raw questions, documents and API data to instances with their ground-truth trajectories.

    python -m whetstone_agent.tooluse.convert raw.json --world company --out company/train.json

A raw question says in hops how its answer is found, each hop with the answer that it gives; a later hop takes an
earlier one's answer as `{{0}}`, `{{1}}` and so on. What a file of raw questions looks like is in `docs/tooluse.md`.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from whetstone_artifacts.data.ladder import Rung
from whetstone_artifacts.replacing import replacing

from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import RETRIEVE, Availability, Forbidden, Instance, Name, Order, Step, Text
from whetstone_agent.tooluse.rungs import tagged
from whetstone_agent.tooluse.world import World

_EARLIER: Final = re.compile(r"\{\{(\d+)\}\}")
_FOUND_WITHIN: Final = 3
"""A search must find its document among the first ones, as many as an agent gets by default."""


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Hop(_Model):
    """One piece of knowledge on the way to the answer: in a document, or in the API."""

    collection: Name | None = None
    document: Name | None = None
    query: Text | None = None
    """Absent: the document's title."""
    operation: Name | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    field: Name | None = None
    answer: Any = None
    """What it gives."""

    @property
    def needs(self) -> set[int]:
        """Hops whose answers it takes."""
        return {int(number) for number in _EARLIER.findall(json.dumps([self.query, self.args]))}


class Policy(_Model):
    """A policy that a question is asked under once more."""

    text: Text
    collections: list[Name] = Field(default_factory=list)
    operations: list[Name] = Field(default_factory=list)


class Asked(_Model):
    """A question, and how its answer is found."""

    question: Text
    hops: list[Hop] = Field(default_factory=list)
    answers: list[Text] | None = None
    """Absent: the answer of the last hop."""

    @property
    def accepted(self) -> list[str]:
        """Accepted answers."""
        return self.answers or [str(self.hops[-1].answer)]


class RawQuestion(Asked):
    """A question with its place in the set, and what the user asks after it."""

    id: Name
    tags: list[Name] = Field(default_factory=list)
    """Tags of its instances, beside the rung of tool use, which follows from the hops."""
    follow_ups: list[Asked] = Field(default_factory=list)
    """What is asked next in the same conversation; hops are counted on from those before."""
    scenarios: Annotated[list[Availability], Field(min_length=1)] = [Availability.BOTH]
    """Each gives an instance."""
    policies: list[Policy] = Field(default_factory=list)
    """Each gives one more."""
    in_order: bool = False
    """Whether the question wants its hops in the order in which they are written, though none may take what another
    gives."""

    @property
    def parts(self) -> list[tuple[str, int, Asked]]:
        """Its questions in their order: where messages say that they are, the place of the first hop, the question."""
        found: list[tuple[str, int, Asked]] = [("", 0, self)]
        for number, one in enumerate(self.follow_ups):
            found.append((f"followUps.{number}.", found[-1][1] + len(found[-1][2].hops), one))
        return found

    @property
    def all_hops(self) -> list[Hop]:
        """Hops of all of its questions."""
        return [hop for _, _, part in self.parts for hop in part.hops]


def convert(questions: Sequence[RawQuestion], world: World, *, file: str, order: Order | None = None) -> list[Instance]:
    """Return the instances of raw questions.

    Args:
        questions: The questions.
        world: What they are about.
        file: What messages call their file.
        order: Which source comes first where a question's hops leave it open; absent: as they are written.

    Raises:
        EnvironmentDataError: Questions are wrong, or searches do not find their documents; all of them are named.
    """
    found: list[Instance] = []
    problems: list[str] = []
    for question in questions:
        said = [f"{file}: question {question.id}: {one}" for one in _problems(question, world)]
        problems += said
        if not said:
            found += _instances(question, world, order)
    if problems:
        raise EnvironmentDataError(problems)
    world.check(found, file)
    return found


def read_questions(path: Path) -> list[RawQuestion]:
    """Read a file of raw questions.

    Raises:
        EnvironmentDataError: It cannot be used.
    """
    try:
        return TypeAdapter(list[RawQuestion]).validate_json(path.read_bytes())
    except OSError as error:
        raise EnvironmentDataError([f"{path.name}: cannot be read: {error.strerror or error}"]) from error
    except ValidationError as error:
        places = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
        raise EnvironmentDataError([f"{path.name}: {place or 'file'}: {said}" for place, said in places]) from error


def write_instances(instances: Sequence[Instance], path: Path) -> None:
    """Write a file of instances, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(render_instances(instances), encoding="utf-8")


def render_instances(instances: Sequence[Instance]) -> str:
    """Return the text of a file of instances: a line each, so that differences can be read."""
    rows = [one.model_dump(by_alias=True, mode="json", exclude_defaults=True) for one in instances]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def _problems(question: RawQuestion, world: World) -> Iterator[str]:
    if question.in_order and all(len(part.hops) < 2 for _, _, part in question.parts):
        yield "inOrder: there are no two hops whose order could matter: add one, or leave it out"
    for place, first, part in question.parts:
        if not part.hops and not part.answers:
            yield f"{place}answers: there is none, and no hop to take it from: add it"
        for number, hop in enumerate(part.hops):
            yield from _hop_problems(question, hop, world, where=f"{place}hops.{number}", place=first + number)


def _hop_problems(question: RawQuestion, hop: Hop, world: World, *, where: str, place: int) -> Iterator[str]:
    if (hop.collection is None) == (hop.operation is None):
        yield f"{where}: give either collection (and document) or operation"
        return
    if hop.answer in (None, ""):
        yield f"{where}.answer: is missing: add what this hop gives"
    if any(needed >= place for needed in hop.needs):
        yield f"{where}: takes the answer of a hop that is not before it: put it first"
        return
    if hop.collection is not None:
        yield from (f"{where}.{said}" for said in _search_problems(question, hop, world))


def _search_problems(question: RawQuestion, hop: Hop, world: World) -> Iterator[str]:
    collection = world.collections.get(hop.collection or "")
    if collection is None:
        yield f"collection: no collection {hop.collection!r}: use one of {', '.join(sorted(world.collections))}"
    elif hop.document not in collection.ids:
        yield f"document: no document {hop.document!r} in {hop.collection}: correct the id"
    else:
        query = str(_step(question, hop, world).args["query"])
        if hop.document not in {one.id for one in collection.search(query, _FOUND_WITHIN)}:
            yield f"query: {query!r} does not find {hop.document!r} among the first {_FOUND_WITHIN}: reword it"


def _instances(question: RawQuestion, world: World, order: Order | None) -> Iterator[Instance]:
    wanted = None if question.in_order else order
    asked: list[dict[str, Any]] = [
        {
            "question": part.question,
            "answers": part.accepted,
            "trajectory": [_step(question, hop, world) for hop in _ordered(part.hops, wanted, first=first)],
        }
        for _, first, part in question.parts
    ]
    sources = [step.searches for one in asked for step in one["trajectory"]]
    first = None
    if len(set(sources)) > 1:
        first = Order.RAG_BEFORE_API if sources[0] else Order.API_BEFORE_RAG
    shared: dict[str, Any] = {**asked[0], "follow_ups": asked[1:], "order": first, "tags": question.tags}
    several = Rung.SEQUENTIAL if question.in_order else Rung.PARALLEL
    several = Rung.NESTED if any(hop.needs for hop in question.all_hops) else several
    for scenario in question.scenarios:
        name = question.id if len(question.scenarios) == 1 else f"{question.id}-{scenario}"
        yield tagged(Instance(id=name, tool_availability=scenario, **shared), several=several)
    for number, policy in enumerate(question.policies, start=1):
        forbidden = Forbidden(collections=policy.collections, operations=policy.operations)
        name = f"{question.id}-policy-{number}"
        yield tagged(Instance(id=name, tool_usage=policy.text, forbidden=forbidden, **shared), several=several)


def _ordered(hops: Sequence[Hop], order: Order | None, *, first: int) -> list[Hop]:
    """Return hops of one question, those of the wanted source as early as what they need allows.

    Args:
        hops: The hops.
        order: Which source is wanted first; absent: as they are written.
        first: Place of the first of them among those of all questions.
    """
    if order is None:
        return list(hops)
    left, done = list(range(len(hops))), list[int]()
    while left:
        ready = [number for number in left if all(need < first or need - first in done for need in hops[number].needs)]
        wanted = [one for one in ready if (hops[one].collection is not None) == (order is Order.RAG_BEFORE_API)]
        # The source that comes first is finished before the other one begins, where hops allow it.
        done.append((wanted or ready)[0])
        left.remove(done[-1])
    return [hops[number] for number in done]


def _step(question: RawQuestion, hop: Hop, world: World) -> Step:
    answers = [one.answer for one in question.all_hops]
    if hop.collection is None:
        return Step(tool=hop.operation or "", args=_filled(hop.args, answers), field=hop.field)
    titles = {one.id: one.title for one in world.collections[hop.collection].documents}
    query = _filled(hop.query or titles[hop.document or ""], answers)
    return Step(tool=RETRIEVE, args={"collection": hop.collection, "query": query}, documents=[hop.document or ""])


def _filled(value: Any, answers: Sequence[Any]) -> Any:
    """Return a value with the answers of earlier hops; one that is nothing but an answer keeps its type."""
    if isinstance(value, dict):
        return {name: _filled(one, answers) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    whole = _EARLIER.fullmatch(value)
    return answers[int(whole[1])] if whole else _EARLIER.sub(lambda one: str(answers[int(one[1])]), value)


def main(argv: Sequence[str] | None = None) -> int:
    """Convert a file; return 1 when it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m whetstone_agent.tooluse.convert", description=__doc__)
    parser.add_argument("raw", type=Path, help="file of raw questions")
    parser.add_argument("--world", type=Path, required=True, help="folder with collections/ and openapi.yaml")
    parser.add_argument("--out", type=Path, required=True, help="file of instances to write")
    parser.add_argument("--order", type=Order, choices=list(Order), help="source that comes first where hops allow it")
    options = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as cache:
            world = World.open(options.world, Path(cache))
            found = convert(read_questions(options.raw), world, file=options.raw.name, order=options.order)
    except EnvironmentDataError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write_instances(found, options.out)
    sys.stdout.write(f"{options.out}: {len(found)} instances\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
