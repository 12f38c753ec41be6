"""A git history as edits: what a commit says is asked for, and its change is made by calls that replace text.

Each replaced text has as much around it as it takes to stand in the file once, and no more: such edits are what a model
is to learn. Made in their order, the calls turn the file before the commit into the file after it.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.data.imports.taken import Row, Skipped
from whetstone_artifacts.errors import ArtifactError

TOOL: Final = {
    "type": "function",
    "function": {
        "name": "str_replace",
        "description": "Replace a text in a file. It must occur there exactly once.",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "old_str": {"type": "string"},
                "new_str": {"type": "string"},
            },
            "required": ["path", "old_str", "new_str"],
            "additionalProperties": False,
        },
    },
}
_MODIFIED: Final = (
    "log",
    "--no-merges",
    "--diff-filter=M",
    "--no-renames",
    "--format=%x1e%H%x1f%B%x1f",
    "--name-only",
    "-z",
)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Which changes are taken.

    Args:
        files: Pattern that a file's path must match, as in `*.py`.
        characters: Longest file.
        edits: Most places that a commit changes in it.
    """

    files: str = "*"
    characters: int = 20_000
    edits: int = 8


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A text that is replaced.

    Args:
        old: The text, which stands in the file once.
        new: What takes its place.
    """

    old: str
    new: str


def from_git(repository: Path, bounds: Bounds, revisions: str = "HEAD") -> Iterator[Row | Skipped]:
    """Yield the changes of a history, one row for each file that a commit changes, newest first.

    Args:
        repository: Its folder.
        bounds: Which changes are taken.
        revisions: As `git log` takes them: `HEAD`, `v1..main`.

    Raises:
        ArtifactError: It is no repository, or has no such revisions.
    """
    for entry in _git(repository, *_MODIFIED, "--end-of-options", revisions, "--").split("\x1e")[1:]:
        commit, message, names = entry.split("\x1f", 2)
        for name in filter(None, (name.strip("\n") for name in names.split("\0"))):
            if fnmatchcase(name, bounds.files):
                yield _row(repository, commit=commit, message=message.strip(), name=name, bounds=bounds)


def edits_of(before: str, after: str) -> list[Edit]:
    """Return the replacements that turn a text into another, in the order in which they are to be made.

    Args:
        before: The text.
        after: The text that it becomes.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    codes = SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    # From the end, so that all before an edit is still as it was, and all behind it is as it will be.
    return [
        _once([*old[:end], *new[new_end:]], start, end, new[new_start:new_end])
        for tag, start, end, new_start, new_end in reversed(codes)
        if tag != "equal"
    ]


def _once(lines: list[str], start: int, end: int, put: list[str]) -> Edit:
    """Return the edit of lines, with as many lines around them as it takes for the old text to stand there once."""
    text, low, high = "".join(lines), start, end
    while True:
        old = "".join(lines[low:high])
        first = text.find(old)
        if old and text.find(old, first + 1) < 0:
            return Edit(old=old, new="".join([*lines[low:start], *put, *lines[end:high]]))
        if low == 0 and high == len(lines):
            # The file is empty, or nothing but one text again and again within itself.
            return Edit(old=old, new="".join([*lines[:start], *put, *lines[end:]]))
        low, high = max(0, low - 1), min(len(lines), high + 1)


def _row(repository: Path, *, commit: str, message: str, name: str, bounds: Bounds) -> Row | Skipped:
    place = f"{commit[:12]} {name}"
    try:
        before, after = (_git(repository, "show", f"{at}:{name}") for at in (f"{commit}^", commit))
    except UnicodeDecodeError:
        return Skipped(place=place, problem="is no text")
    if "\0" in before + after or not before or not message:
        return Skipped(place=place, problem="is no text, was empty, or its commit says nothing")
    if max(len(before), len(after)) > bounds.characters:
        return Skipped(place=place, problem=f"has more than {bounds.characters} characters")
    edits = edits_of(before, after)
    if not 0 < len(edits) <= bounds.edits:
        return Skipped(place=place, problem=f"changes in {len(edits)} places, not 1 to {bounds.edits}")
    calls = [_call(number, name, edit) for number, edit in enumerate(edits, start=1)]
    return {
        "messages": [
            {"role": "user", "content": f"{message}\n\nThis is {name}:\n\n{before}"},
            {"role": "assistant", "content": "", "tool_calls": calls},
        ],
        "tools": [TOOL],
        "task": f"git:{commit}",
    }


def _call(number: int, name: str, edit: Edit) -> dict[str, Any]:
    arguments = {"path": name, "old_str": edit.old, "new_str": edit.new}
    return {"id": f"c{number}", "type": "function", "function": {"name": "str_replace", "arguments": arguments}}


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    try:
        # No shell reads it, and what is given cannot be an option.
        done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    except FileNotFoundError as error:
        raise ArtifactError(Reason.INVALID_SPEC, "git is not installed; install it") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip()
        raise ArtifactError(
            Reason.INVALID_SPEC, f"{repository}: {told}; name a repository and revisions of it"
        ) from error
    return done.stdout.decode()
