"""What a task is: a family of like tasks, and one task with its parameters."""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from whetstone_dev.tasks.vocabulary import Pool, Split

type Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One command of a reference solution, and what it prints."""

    command: str
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of tasks that differ in parameters and wording only.

    `draw` chooses parameters from a pool. `wordings` are the instructions used in training, `held_out` those
    used in the benchmark, both as format strings over the parameters. `files` gives the files that exist
    before the agent acts (path to content), `steps` the reference solution, `check` a list of POSIX shell
    conditions that all hold, in the working directory, exactly when the task is solved. A parameter `lines`
    holds a file's lines joined by newlines.
    """

    name: str
    draw: Callable[[Pool, Random], Parameters]
    wordings: tuple[str, ...]
    held_out: tuple[str, ...]
    files: Callable[[Parameters], Mapping[str, str]]
    steps: Callable[[Parameters], tuple[Step, ...]]
    check: Callable[[Parameters], tuple[str, ...]]

    def wordings_of(self, split: Split) -> tuple[str, ...]:
        """Give the wordings of one split."""
        return self.wordings if split is Split.TRAINING else self.held_out


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: a family, its parameters and the wording of its instruction."""

    family: Family
    parameters: Parameters
    wording: str

    @property
    def digest(self) -> str:
        """`sha256:` and the hash of family and parameters; the wording is no part of a task's identity."""
        identity = {"family": self.family.name, "parameters": dict(self.parameters)}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """A short name, unique in practice: the family and eight digits of the digest."""
        return f"{self.family.name}-{self.digest.removeprefix('sha256:')[:8]}"

    @property
    def instruction(self) -> str:
        """What the model is asked to do."""
        return self.wording.format_map(self.parameters)

    @property
    def files(self) -> Mapping[str, str]:
        """Files that exist before the agent acts: path in the working directory to content."""
        return self.family.files(self.parameters)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The reference solution."""
        return self.family.steps(self.parameters)

    @property
    def check(self) -> tuple[str, ...]:
        """Shell conditions that all hold when the task is solved."""
        return self.family.check(self.parameters)


def holds(file: str, text: str) -> str:
    """Give a shell condition: `file` holds exactly `text`, newlines at the end aside."""
    return f'[ "$(cat -- {shlex.quote(file)})" = {shlex.quote(text)} ]'


def exists(kind: str, path: str) -> str:
    """Give a shell condition on `path`; `kind` is a letter of `test`: f file, d folder, x executable."""
    return f"[ -{kind} {shlex.quote(path)} ]"


def absent(path: str) -> str:
    """Give a shell condition: nothing is at `path`."""
    return f"[ ! -e {shlex.quote(path)} ]"


def no_files(_: Parameters) -> Mapping[str, str]:
    """Give the files of a task that starts in an empty folder."""
    return {}


def text_of(lines: str) -> str:
    """Give the content of a file with these lines, the last one ended too."""
    return f"{lines}\n"
