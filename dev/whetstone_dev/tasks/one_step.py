"""Families of tasks that one command solves."""

from typing import Final

from whetstone_dev.tasks.family import Family, Step, absent, exists, holds, no_files, text_of

CREATE_FILE: Final = Family(
    name="create-file",
    draw=lambda pool, rng: {"file": pool.file(rng), "text": pool.text(rng)},
    wordings=(
        "Create a file named {file} containing the text '{text}'.",
        "Write '{text}' into a new file called {file}.",
        "Make a file {file} with the content '{text}'.",
        "Put the text '{text}' in a new file named {file}.",
    ),
    held_out=(
        "I need a new file {file} with the text '{text}' in it.",
        "Please create {file} and write '{text}' to it.",
    ),
    files=no_files,
    steps=lambda p: (Step(f"echo '{p['text']}' > {p['file']}"),),
    check=lambda p: (holds(p["file"], p["text"]),),
)

MAKE_FOLDERS: Final = Family(
    name="make-folders",
    draw=lambda pool, rng: dict(zip(("outer", "inner"), rng.sample(pool.names, 2), strict=True)),
    wordings=(
        "Create the directory {outer}/{inner}.",
        "Make a directory {outer} with a subdirectory {inner}.",
        "Create a folder {inner} inside a new folder {outer}.",
        "Make the nested folders {outer}/{inner}.",
    ),
    held_out=(
        "Set up the nested directory {outer}/{inner}.",
        "I need a new directory {outer} with a directory {inner} in it.",
    ),
    files=no_files,
    steps=lambda p: (Step(f"mkdir -p {p['outer']}/{p['inner']}"),),
    check=lambda p: (exists("d", f"{p['outer']}/{p['inner']}"),),
)

COPY_FILE: Final = Family(
    name="copy-file",
    draw=lambda pool, rng: {
        **dict(zip(("file", "new"), pool.files(rng, 2), strict=True)),
        "text": pool.text(rng),
    },
    wordings=(
        "Copy the file {file} to {new}.",
        "Make a copy of {file} named {new}.",
        "Copy {file} and call the copy {new}.",
        "Create {new} as a copy of {file}.",
    ),
    held_out=(
        "Duplicate {file} as {new}.",
        "I want a second copy of {file} called {new}.",
    ),
    files=lambda p: {p["file"]: text_of(p["text"])},
    steps=lambda p: (Step(f"cp {p['file']} {p['new']}"),),
    check=lambda p: (holds(p["file"], p["text"]), holds(p["new"], p["text"])),
)

RENAME_FILE: Final = Family(
    name="rename-file",
    draw=lambda pool, rng: {
        **dict(zip(("file", "new"), pool.files(rng, 2), strict=True)),
        "text": pool.text(rng),
    },
    wordings=(
        "Rename the file {file} to {new}.",
        "Change the name of {file} to {new}.",
        "Give the file {file} the new name {new}.",
        "Rename {file} so that it is called {new}.",
    ),
    held_out=(
        "The file {file} should be renamed to {new}.",
        "Please rename {file} as {new}.",
    ),
    files=lambda p: {p["file"]: text_of(p["text"])},
    steps=lambda p: (Step(f"mv {p['file']} {p['new']}"),),
    check=lambda p: (absent(p["file"]), holds(p["new"], p["text"])),
)

DELETE_FILE: Final = Family(
    name="delete-file",
    draw=lambda pool, rng: {
        **dict(zip(("file", "other"), pool.files(rng, 2), strict=True)),
        "text": pool.text(rng),
    },
    wordings=(
        "Delete the file {file}.",
        "Remove the file {file}.",
        "Delete {file} and keep the other files.",
        "Remove {file} from this directory.",
    ),
    held_out=(
        "The file {file} is not needed any more, delete it.",
        "Get rid of the file {file}.",
    ),
    files=lambda p: {p["file"]: text_of(p["text"]), p["other"]: text_of(p["text"])},
    steps=lambda p: (Step(f"rm {p['file']}"),),
    check=lambda p: (absent(p["file"]), holds(p["other"], p["text"])),
)

COUNT_LINES: Final = Family(
    name="count-lines",
    draw=lambda pool, rng: {
        **dict(zip(("file", "new"), pool.files(rng, 2), strict=True)),
        "lines": "\n".join(pool.lines(rng)),
    },
    wordings=(
        "Count the lines of {file} and write the number to {new}.",
        "Write the number of lines in {file} to {new}.",
        "Save the line count of {file} in {new}.",
        "How many lines has {file}? Write the number to {new}.",
    ),
    held_out=(
        "Find out how many lines {file} has and save the number in {new}.",
        "Store the number of lines of {file} in {new}.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"wc -l < {p['file']} > {p['new']}"),),
    check=lambda p: (holds(p["file"], p["lines"]), holds(p["new"], str(p["lines"].count("\n") + 1))),
)

APPEND_LINE: Final = Family(
    name="append-line",
    draw=lambda pool, rng: {
        "file": pool.file(rng),
        "text": pool.text(rng),
        "lines": "\n".join(pool.lines(rng)),
    },
    wordings=(
        "Append the line '{text}' to {file}.",
        "Add the line '{text}' at the end of {file}.",
        "Add '{text}' as the last line of {file}.",
        "Append '{text}' to the file {file}.",
    ),
    held_out=(
        "The file {file} needs '{text}' as one more line at its end.",
        "Extend the file {file} by the line '{text}'.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"echo '{p['text']}' >> {p['file']}"),),
    check=lambda p: (holds(p["file"], f"{p['lines']}\n{p['text']}"),),
)

SORT_LINES: Final = Family(
    name="sort-lines",
    draw=lambda pool, rng: {
        **dict(zip(("file", "new"), pool.files(rng, 2), strict=True)),
        "lines": "\n".join(pool.lines(rng)),
    },
    wordings=(
        "Sort the lines of {file} and save the result as {new}.",
        "Write the sorted lines of {file} to {new}.",
        "Sort {file} alphabetically into {new}.",
        "Save the lines of {file} in sorted order in {new}.",
    ),
    held_out=(
        "Put the lines of {file} in alphabetical order and write them to {new}.",
        "Create {new} with the sorted content of {file}.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"sort {p['file']} > {p['new']}"),),
    check=lambda p: (
        holds(p["file"], p["lines"]),
        holds(p["new"], "\n".join(sorted(p["lines"].split("\n")))),
    ),
)

FIRST_LINES: Final = Family(
    name="first-lines",
    draw=lambda pool, rng: {
        **dict(zip(("file", "new"), pool.files(rng, 2), strict=True)),
        "lines": "\n".join(pool.lines(rng)),
        "count": str(rng.choice(pool.cuts)),
    },
    wordings=(
        "Write the first {count} lines of {file} to {new}.",
        "Save the first {count} lines of {file} as {new}.",
        "Copy only the first {count} lines of {file} into {new}.",
        "Take the first {count} lines of {file} and put them in {new}.",
    ),
    held_out=(
        "The first {count} lines of {file} should go to {new}.",
        "Store the top {count} lines of {file} in {new}.",
    ),
    files=lambda p: {p["file"]: text_of(p["lines"])},
    steps=lambda p: (Step(f"head -n {p['count']} {p['file']} > {p['new']}"),),
    check=lambda p: (
        holds(p["file"], p["lines"]),
        holds(p["new"], "\n".join(p["lines"].split("\n")[: int(p["count"])])),
    ),
)

MAKE_EXECUTABLE: Final = Family(
    name="make-executable",
    draw=lambda pool, rng: {"file": pool.file(rng, ".sh"), "text": pool.text(rng)},
    wordings=(
        "Make the script {file} executable.",
        "Give {file} permission to be executed.",
        "Set the executable bit of {file}.",
        "Change the mode of {file} so that it can be run.",
    ),
    held_out=(
        "The script {file} must be executable.",
        "Add execute permission to {file}.",
    ),
    files=lambda p: {p["file"]: f"#!/bin/sh\necho {p['text']}\n"},
    steps=lambda p: (Step(f"chmod +x {p['file']}"),),
    check=lambda p: (exists("x", p["file"]), holds(p["file"], f"#!/bin/sh\necho {p['text']}")),
)
