"""Instances: a question, its answers, what is available for it, and the calls that lead there. Read from JSON.

A file is a JSON list of instances. Everything that is wrong in it is reported at once, each with file, instance, field
and fix, before anything runs.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from whetstone_agent.tooluse.errors import EnvironmentDataError

RETRIEVE: Final = "retrieve_documents"
"""Name of the tool that searches documents."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Availability(StrEnum):
    """Which kinds of tools an instance offers."""

    ONLY_RAG = "only_rag"
    ONLY_API = "only_api"
    BOTH = "both"
    NEITHER = "neither"

    @property
    def documents(self) -> bool:
        """Whether documents can be searched."""
        return self in (Availability.ONLY_RAG, Availability.BOTH)

    @property
    def api(self) -> bool:
        """Whether the API can be called."""
        return self in (Availability.ONLY_API, Availability.BOTH)


class Order(StrEnum):
    """Which source the calls of an instance begin with."""

    RAG_BEFORE_API = "rag_before_api"
    API_BEFORE_RAG = "api_before_rag"


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Step(_Model):
    """One call of a ground-truth trajectory, in the words of mode `rest`; other modes render it in theirs."""

    tool: Name
    """`retrieve_documents`, or the operationId of an API's operation."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments by name."""
    field: Name | None = None
    """Field of the API's answer that the question is about; absent: all of it."""
    documents: list[Name] = Field(default_factory=list)
    """Ids of the documents that a search must find one of."""

    @property
    def searches(self) -> bool:
        """Whether it searches documents."""
        return self.tool == RETRIEVE

    @property
    def source(self) -> str:
        """What a policy can forbid: the collection, or the operation."""
        return str(self.args.get("collection", "")) if self.searches else self.tool


class Forbidden(_Model):
    """What the text of `toolUsage` forbids, for the environment to know."""

    collections: list[Name] = Field(default_factory=list)
    operations: list[Name] = Field(default_factory=list)


class FollowUp(_Model):
    """What the user asks next, in the same conversation."""

    question: Text
    answers: Annotated[list[Text], Field(min_length=1)]
    """Accepted answers, the best one first."""
    trajectory: list[Step] = Field(default_factory=list)
    """Calls that lead to the answer, if all tools were there."""


class Instance(_Model):
    """A task of the environment."""

    id: Name
    """Name that is its own in the file."""
    question: Text
    answers: Annotated[list[Text], Field(min_length=1)]
    """Accepted answers, the best one first."""
    tags: list[Name] = Field(default_factory=list)
    """What it is tagged with; at most one rung of the ladder of tool use among them."""
    tool_availability: Availability = Availability.BOTH
    tools: list[Name] | None = None
    """Collections and operations that it offers; absent: all that `toolAvailability` allows."""
    tool_usage: str = ""
    """Policy on the use of tools, shown to the agent."""
    forbidden: Forbidden = Forbidden()
    order: Order | None = None
    """Absent where only one source is needed, or none."""
    trajectory: list[Step] = Field(default_factory=list)
    """Calls that lead to the answer, if all tools were there."""
    follow_ups: list[FollowUp] = Field(default_factory=list)
    """What is asked next, one after the other, each once the question before it is answered rightly."""

    @property
    def turns(self) -> "list[Instance]":
        """Its questions in their order, each as an instance of its own."""
        alone = self.model_copy(update={"follow_ups": []})
        return [alone, *(alone.model_copy(update=dict(one)) for one in self.follow_ups)]

    def offers(self, step: Step) -> bool:
        """Say whether the tool of a call is available and allowed."""
        available = self.tool_availability.documents if step.searches else self.tool_availability.api
        return available and self.lists(step.source) and not self.forbids(step)

    def lists(self, source: str) -> bool:
        """Say whether a collection or an operation is among those it offers."""
        return self.tools is None or source in self.tools

    def forbids(self, step: Step) -> bool:
        """Say whether the policy forbids a call."""
        return step.source in (self.forbidden.collections if step.searches else self.forbidden.operations)

    @property
    def task(self) -> str:
        """Digest of what is asked: what was trained on it is not to be judged by it, whatever tools were there."""
        asked = "\n".join([self.question, *(one.question for one in self.follow_ups)])
        return f"sha256:{hashlib.sha256(asked.encode()).hexdigest()}"

    @property
    def answerable(self) -> bool:
        """Whether every call that leads to the answer may be made; where not, saying so is the right answer."""
        steps = [*self.trajectory, *(step for one in self.follow_ups for step in one.trajectory)]
        return all(self.offers(step) for step in steps)


_LIST: Final = TypeAdapter(list[dict[str, Any]])
_FIXES: Final = {
    "missing": "add it",
    "extra_forbidden": "remove it, or correct its name",
    "too_short": "give at least one",
    "string_too_short": "write some text",
    "string_pattern_mismatch": "write some text",
}
"""What to do, by pydantic's type of the error; for the others its message says what is expected."""


def read_instances(path: Path) -> list[Instance]:
    """Read a file of instances.

    Raises:
        EnvironmentDataError: It cannot be read, is no list, or has instances that are wrong; all of them are named.
    """
    try:
        rows = _LIST.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise EnvironmentDataError([f"{path.name}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise EnvironmentDataError([f"{path.name}: is not UTF-8 (byte {error.start}): save it as UTF-8"]) from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise EnvironmentDataError([f"{path.name}: is no JSON ({where}: {error.msg}): correct it there"]) from error
    except ValidationError as error:
        raise EnvironmentDataError([f"{path.name}: must be a JSON list of objects, one an instance"]) from error
    return check_instances(rows, path.name)


def check_instances(rows: Sequence[dict[str, Any]], file: str) -> list[Instance]:
    """Read instances from their JSON objects.

    Args:
        rows: The objects.
        file: What messages call the file.

    Raises:
        EnvironmentDataError: Some are wrong; all of them are named.
    """
    found: list[Instance] = []
    problems: list[str] = []
    for number, row in enumerate(rows):
        try:
            found.append(Instance.model_validate(row))
        except ValidationError as error:
            problems += _problems(error, f"{file}: instance {row.get('id', f'number {number + 1}')}")
    ids = Counter(str(row["id"]) for row in rows if "id" in row)
    problems += [
        f"{file}: instance {name}: id: {count} have it: rename all but one" for name, count in ids.items() if count > 1
    ]
    if problems:
        raise EnvironmentDataError(problems)
    if not found:
        raise EnvironmentDataError([f"{file}: holds no instance: add one"])
    return found


def _problems(error: ValidationError, where: str) -> Iterator[str]:
    for one in error.errors(include_url=False):
        field = ".".join(str(part) for part in one["loc"])
        message = one["msg"]
        yield f"{where}: {field}: {message[:1].lower()}{message[1:]}: {_FIXES.get(one['type'], 'correct it')}"
