"""The command of everything that is generated: writes its files, or says which of them are not current."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Files = Callable[[Path], Mapping[Path, str]]


def write_or_check(files: Files, *, about: str, arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 1 where a file is not current.

    Args:
        files: Returns the files with their texts, of a checkout.
        about: What is generated, for `--help`.
        arguments: Command line; that of the process when absent.
    """
    parser = argparse.ArgumentParser(description=about)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the files")
    action.add_argument("--check", action="store_true", help="fail if a file is not current")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout (default: current folder)")
    options = parser.parse_args(arguments)
    found = files(options.root)
    stale = [path for path, text in found.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in stale:
            sys.stderr.write(f"{path} is not current; run `make generate`\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found[path], encoding="utf-8")
    return 0


def page_command(page: Callable[[], str], place: Path) -> Callable[[Sequence[str] | None], int]:
    """Return the command of one page; without arguments it takes those of the process.

    Args:
        page: Returns its text.
        place: Where it is in the checkout.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        return write_or_check(lambda root: {root / place: page()}, about=f"Generate {place}.", arguments=arguments)

    return main
