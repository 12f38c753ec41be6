"""Families of tasks that look for words inside files."""

from random import Random
from typing import Final

from whetstone_dev.tasks.family import Family, Parameters, Step, holds, text_of
from whetstone_dev.tasks.vocabulary import Pool


def _draw_find(pool: Pool, rng: Random) -> Parameters:
    file, new = pool.files(rng, 2)
    word, *others = rng.sample(pool.words, 6)
    found = rng.choice((1, 2))
    lines = [f"{other} {word}" if place < found else other for place, other in enumerate(others)]
    rng.shuffle(lines)
    return {"file": file, "new": new, "word": word, "lines": "\n".join(lines)}


def _draw_replace(pool: Pool, rng: Random) -> Parameters:
    word, new, *others = rng.sample(pool.words, 6)
    lines = [word, *others]
    rng.shuffle(lines)
    return {"file": pool.file(rng), "word": word, "new": new, "lines": "\n".join(lines)}


FIND_LINES: Final = Family(
    name="find-lines",
    draw=_draw_find,
    wordings=(
        "Write the lines of {file} that contain '{word}' to {new}.",
        "Find all lines with '{word}' in {file} and save them as {new}.",
        "Save every line of {file} containing '{word}' in {new}.",
        "Search {file} for '{word}' and write the matching lines to {new}.",
        "All lines of {file} in which '{word}' occurs should go to {new}.",
        "Look for '{word}' in {file} and store the lines found in {new}.",
        "Filter {file} for '{word}' and put the result in {new}.",
        "{new} should hold all lines of {file} with the word '{word}'.",
    ),
    held_out=(
        "Collect the lines of {file} that mention '{word}' in {new}.",
        "Pick the lines with '{word}' from {file} and write them to {new}.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"grep '{p['word']}' {p['file']} > {p['new']}"),),
    check=lambda p: (
        holds(p["file"], p["lines"]),
        holds(p["new"], "\n".join(line for line in p["lines"].split("\n") if p["word"] in line)),
    ),
)

REPLACE_WORD: Final = Family(
    name="replace-word",
    draw=_draw_replace,
    wordings=(
        "Replace the word '{word}' with '{new}' in {file}.",
        "In the file {file}, change '{word}' to '{new}'.",
        "Change every '{word}' in {file} to '{new}'.",
        "Edit {file}: '{word}' must become '{new}'.",
        "Substitute '{new}' for '{word}' in {file}.",
        "The word '{word}' in {file} should be replaced by '{new}'.",
        "Swap '{word}' for '{new}' everywhere in {file}.",
        "Use '{new}' instead of '{word}' in {file}.",
    ),
    held_out=(
        "Wherever {file} says '{word}', it should say '{new}'.",
        "Update {file} by changing the word '{word}' into '{new}'.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"sed -i 's/{p['word']}/{p['new']}/g' {p['file']}"),),
    check=lambda p: (holds(p["file"], p["lines"].replace(p["word"], p["new"])),),
)
