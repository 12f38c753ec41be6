"""Families of tasks for which the agent acts, looks, and acts again."""

from random import Random
from typing import Final

from whetstone_dev.tasks.family import Family, Parameters, Step, absent, exists, holds, no_files, text_of
from whetstone_dev.tasks.vocabulary import Pool


def _draw_store(pool: Pool, rng: Random) -> Parameters:
    file = pool.file(rng)
    folder = rng.choice([name for name in pool.names if not file.startswith(name)])
    return {"file": file, "folder": folder, "text": pool.text(rng)}


FILE_IN_FOLDER: Final = Family(
    name="file-in-folder",
    draw=_draw_store,
    wordings=(
        "Create a directory {folder}, then create {folder}/{file} with the text '{text}'.",
        "First make a folder {folder}. Then write '{text}' into a file {file} inside it.",
        "Make the directory {folder} and, in it, a file {file} containing '{text}'.",
        "Create a folder {folder} and put a file {file} with the text '{text}' into it.",
        "I need a new directory {folder} with a file {file} in it that contains '{text}'.",
        "Set up a folder {folder}, then save '{text}' as {file} in that folder.",
        "Add a folder {folder} that contains a file {file} with the text '{text}'.",
        "Write '{text}' to {file} in a new directory {folder}.",
    ),
    held_out=(
        "In a new folder called {folder}, create {file} with the content '{text}'.",
        "Start a directory {folder} and place a file {file} there that says '{text}'.",
    ),
    files=no_files,
    steps=lambda p: (
        Step(f"mkdir -p {p['folder']}"),
        Step(f"echo '{p['text']}' > {p['folder']}/{p['file']}"),
    ),
    check=lambda p: (exists("d", p["folder"]), holds(f"{p['folder']}/{p['file']}", p["text"])),
)

MOVE_TO_FOLDER: Final = Family(
    name="move-to-folder",
    draw=_draw_store,
    wordings=(
        "Create a directory {folder}, then move {file} into it.",
        "First make a folder {folder}. Then move the file {file} there.",
        "Make the directory {folder} and move {file} into {folder}.",
        "Move the file {file} into a new folder {folder}.",
        "Set up a new directory {folder}, then put the existing file {file} there.",
        "The file {file} belongs in a new folder {folder}: create it and move the file.",
        "Put {file} into a new directory {folder}.",
        "Add a folder {folder} and move {file} there.",
    ),
    held_out=(
        "Make a new directory called {folder}, and {file} should be moved inside.",
        "Please move {file} to a directory {folder} that you create first.",
    ),
    files=lambda p: {p["file"]: text_of(p["text"])},
    steps=lambda p: (Step(f"mkdir -p {p['folder']}"), Step(f"mv {p['file']} {p['folder']}/")),
    check=lambda p: (absent(p["file"]), holds(f"{p['folder']}/{p['file']}", p["text"])),
)

FOLLOW_NOTE: Final = Family(
    name="follow-note",
    draw=lambda pool, rng: dict(zip(("file", "target"), pool.files(rng, 2), strict=True)),
    wordings=(
        "The file {file} holds a file name. Read it, then create an empty file with that name.",
        "Read {file}. It contains a name. Create an empty file with this name.",
        "Look into {file} to find a file name, then make an empty file of that name.",
        "Print {file}, then create an empty file that has the name written there.",
        "There is a file name in {file}. Look it up and create an empty file called like that.",
        "Open {file} to learn a file name, and create this file without any content.",
        "{file} names another file. Find out which, and create that file, empty.",
        "Show the content of {file} and make an empty file with the name you see.",
    ),
    held_out=(
        "Find the name inside {file}, then make an empty file called by it.",
        "First read {file}, which holds a file name. Afterwards create that empty file.",
    ),
    files=lambda p: {p["file"]: text_of(p["target"])},
    steps=lambda p: (Step(f"cat {p['file']}", p["target"]), Step(f"touch {p['target']}")),
    check=lambda p: (exists("f", p["target"]), f"[ ! -s {p['target']} ]", holds(p["file"], p["target"])),
)
