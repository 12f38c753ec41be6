"""`whetstone data validate`: what is wrong with training data, before a training meets it."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE

if TYPE_CHECKING:
    from whetstone_artifacts.data.findings import Finding, Level, Rule
    from whetstone_artifacts.data.validation import DataCheck, FileFigures

TOKENIZER = "tokenizer.json"


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("validate", help="check files of training data, row by row")
    one.add_argument("files", type=Path, nargs="+", metavar="file", help="JSON lines or .parquet, to learn from")
    one.add_argument("--held-out", type=Path, action="append", default=[], metavar="FILE", help="must not be learned")
    one.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="count tokens with this model's tokenizer.json")
    one.add_argument("--max-characters", type=int, metavar="N", help="tell rows that are longer")
    one.add_argument("--max-tokens", type=int, metavar="N", help="tell rows that are longer; needs --tokenizer")
    one.add_argument("--alike", type=float, default=0.9, metavar="SHARE", help="from which rows are nearly the same")
    one.add_argument("--no-near", action="store_true", help="look for no rows that are nearly the same")
    one.add_argument("--show", type=int, default=20, metavar="N", help="findings told of a rule and file; default 20")
    one.add_argument("--strict", action="store_true", help="warnings make the exit code 1 too")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(command_function=validate)


def validate(options: argparse.Namespace) -> int:
    """Check files and print what is wrong with them, and their figures.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a row is wrong or gives away one that is held out, 2 when the command cannot be run so.
    """
    problem = _usage(options)
    if problem is not None:
        sys.stderr.write(f"whetstone: {problem}\n")
        return EXIT_USAGE
    try:
        return _checked(options)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[cli]\n")
    except OSError as error:
        sys.stderr.write(f"whetstone: {error.filename} cannot be read: {error.strerror}\n")
    except _TokenizerError as error:
        sys.stderr.write(f"whetstone: {error}\n")
    return EXIT_USAGE


class _TokenizerError(Exception):
    """The tokenizer cannot be read."""


def _usage(options: argparse.Namespace) -> str | None:
    places = [*options.held_out, *options.files]
    missing = next((path for path in places if not path.is_file()), None)
    if missing is not None:
        return f"{missing} is no file; name files of JSON lines or Parquet"
    twice = next((path for path, count in Counter(path.resolve() for path in places).items() if count > 1), None)
    if twice is not None:
        return f"{twice} is named twice; name each file once"
    if options.max_tokens is not None and options.tokenizer is None:
        return "--max-tokens needs --tokenizer"
    if not 0 < options.alike <= 1:
        return f"--alike is {options.alike:g}; give a share above 0, at most 1"
    return None


def _checked(options: argparse.Namespace) -> int:
    from whetstone_artifacts.data.seen import seen_rows
    from whetstone_artifacts.data.validation import DataCheck, Limits

    limits = Limits(
        alike=None if options.no_near else options.alike,
        longest=options.max_characters,
        longest_tokens=options.max_tokens,
    )
    places = [(path, True) for path in options.held_out] + [(path, False) for path in options.files]
    counts: Counter[tuple[str, Rule, Level]] = Counter()
    shown: list[Finding] = []
    with seen_rows() as seen:
        check = DataCheck(seen, limits, _counter(options.tokenizer))
        for path, held_out in places:
            for finding in check.check(path, held_out=held_out):
                key = (finding.file, finding.rule, finding.level)
                counts[key] += 1
                if counts[key] <= options.show:
                    shown.append(finding)
    (_print_json if options.json else _print_text)(check, shown, counts)
    bad = {"error", "warning"} if options.strict else {"error"}
    return EXIT_INVALID if any(level in bad for _, _, level in counts) else 0


def _counter(folder: Path | None) -> Callable[[str], int] | None:
    """Return what counts the tokens of a text, the marks of a chat template left out."""
    if folder is None:
        return None
    from tokenizers import Tokenizer

    path = folder if folder.is_file() else folder / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise _TokenizerError(f"{path} is no tokenizer ({error}); name the folder of the base model") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _print_json(check: "DataCheck", shown: "Sequence[Finding]", counts: "Counter[tuple[str, Rule, Level]]") -> None:
    keys = ("file", "rule", "level")
    told = {
        "files": [_figures(one) for one in check.files],
        "counts": [{**dict(zip(keys, key, strict=True)), "count": count} for key, count in counts.items()],
        "findings": [asdict(finding) for finding in shown],
    }
    print(json.dumps(told, indent=1))


def _figures(one: "FileFigures") -> dict[str, Any]:
    spreads = {"characters": one.characters, "tokens": one.tokens}
    return {
        "file": one.file,
        "heldOut": one.held_out,
        "rows": one.rows,
        "good": one.good,
        "forms": dict(one.forms),
        "toolCalls": dict(one.rungs),
        **{name: asdict(spread) for name, spread in spreads.items() if spread is not None},
    }


def _print_text(check: "DataCheck", shown: "Sequence[Finding]", counts: "Counter[tuple[str, Rule, Level]]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    for finding in shown:
        print(finding)
    for (file, rule, _), count in counts.items():
        told = sum(finding.file == file and finding.rule == rule for finding in shown)
        if count > told:
            print(f"{file}: {count - told} more of {rule}; see them with --show")
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("file", "rows", "good", "form", "tool calls", "characters", *(["tokens"] if _tokens(check) else [])):
        table.add_column(name, overflow="fold", justify="right" if name in ("rows", "good") else "left")
    for one in check.files:
        name = f"{one.file} (held out)" if one.held_out else one.file
        cells = [name, str(one.rows), str(one.good), _parts(one.forms), _parts(one.rungs), _spread(one.characters)]
        table.add_row(*cells, *([_spread(one.tokens)] if _tokens(check) else []))
    console = Console(file=sys.stdout, markup=False, highlight=False)
    console.print(table)
    levels = Counter[str]()
    for (_, _, level), count in counts.items():
        levels[level] += count
    print(", ".join(f"{levels[level]} {level}s" for level in ("error", "warning")))


def _tokens(check: "DataCheck") -> bool:
    return any(one.token_counts for one in check.files)


def _parts(counts: "Counter[Any]") -> str:
    parts: Iterable[tuple[Any, int]] = counts.most_common()
    return "\n".join(f"{count} {name}" for name, count in parts)


def _spread(spread: Any) -> str:
    return "" if spread is None else f"median {spread.median}\n95 % {spread.p95}\nmost {spread.longest}"
