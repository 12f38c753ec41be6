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
        "I need a new file {file} with the text '{text}' in it.",
        "Please create {file} and write '{text}' to it.",
        "Save '{text}' as the content of {file}.",
        "There should be a file {file} that says '{text}'.",
    ),
    held_out=(
        "Start a file called {file}; its only line is '{text}'.",
        "Store the text '{text}' in a file {file}.",
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
        "Set up the nested directory {outer}/{inner}.",
        "I need a new directory {outer} with a directory {inner} in it.",
        "Build the folder path {outer}/{inner}.",
        "Add a new directory {outer} and a directory {inner} below it.",
    ),
    held_out=(
        "There should be a folder {outer} that has a folder {inner} inside.",
        "Please create the path {outer}/{inner} as directories.",
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
        "Duplicate {file} as {new}.",
        "I want a second copy of {file} called {new}.",
        "Write the content of {file} to a second file {new}.",
        "Back up {file} as {new}.",
    ),
    held_out=(
        "Keep {file} and make {new} with the same content.",
        "Please copy {file}, using {new} as the name of the copy.",
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
        "The file {file} should be renamed to {new}.",
        "Please rename {file} as {new}.",
        "From now on the file {file} is called {new}.",
        "Move {file} to the name {new}.",
    ),
    held_out=(
        "{file} has the wrong name; it should be {new}.",
        "Use {new} as the new name of the file {file}.",
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
        "The file {file} is not needed any more, delete it.",
        "Get rid of the file {file}.",
        "Erase the file {file}.",
        "{file} must not exist any longer.",
    ),
    held_out=(
        "Please throw away {file}.",
        "Clean up by removing the file {file}.",
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
        "Find out how many lines {file} has and save the number in {new}.",
        "Store the number of lines of {file} in {new}.",
        "Put the count of lines in {file} into {new}.",
        "{new} should contain the number of lines of {file}.",
    ),
    held_out=(
        "Determine the number of lines in {file}; the result belongs in {new}.",
        "Count how many lines are in {file} and put the answer in {new}.",
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
        "The file {file} needs '{text}' as one more line at its end.",
        "Extend the file {file} by the line '{text}'.",
        "Put '{text}' on a new line at the end of {file}.",
        "Write '{text}' below the last line of {file}.",
    ),
    held_out=(
        "After the last line of {file}, add '{text}'.",
        "Please append one line to {file}: '{text}'.",
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
        "Put the lines of {file} in alphabetical order and write them to {new}.",
        "Create {new} with the sorted content of {file}.",
        "Order the lines of {file} from a to z and save them as {new}.",
        "{new} should hold the lines of {file}, sorted.",
    ),
    held_out=(
        "Take the lines of {file}, sort them, and store them in {new}.",
        "Write a sorted version of {file} to {new}.",
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
        "The first {count} lines of {file} should go to {new}.",
        "Store the top {count} lines of {file} in {new}.",
        "Keep the first {count} lines of {file} as {new}.",
        "{new} should hold the first {count} lines of {file}.",
    ),
    held_out=(
        "Extract the first {count} lines of {file} into {new}.",
        "From {file}, write only the {count} lines at the top to {new}.",
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
        "The script {file} must be executable.",
        "Add execute permission to {file}.",
        "Allow {file} to be run as a program.",
        "Turn {file} into an executable script.",
    ),
    held_out=(
        "It should be possible to run {file}: set its permissions.",
        "Please mark {file} as executable.",
    ),
    files=lambda p: {p["file"]: f"#!/bin/sh\necho {p['text']}\n"},
    steps=lambda p: (Step(f"chmod +x {p['file']}"),),
    check=lambda p: (exists("x", p["file"]), holds(p["file"], f"#!/bin/sh\necho {p['text']}")),
)
