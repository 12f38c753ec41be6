"""`whetstone data expand`: more rows from a few human ones, by a model that teaches."""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.data.running import add_files, guarded, share
from whetstone_cli.exits import EXIT_INVALID

if TYPE_CHECKING:
    from whetstone_artifacts.data.expansion.course import Plan, Sampling
    from whetstone_artifacts.data.expansion.expand import Expansion, Novelty
    from whetstone_artifacts.data.expansion.ledger import Budget, Ledger
    from whetstone_artifacts.data.seen import Seen

KEY_VARIABLE: Final = "WHETSTONE_TEACHER_KEY"
"""Variable with the key that the teacher asks for."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("expand", help="make more rows from a few human ones, by a model that teaches")
    add_files(one)
    one.add_argument("-o", dest="output", type=Path, required=True, metavar="FOLDER", help="of this expansion")
    one.add_argument("--url", required=True, help=f"base URL of the teacher's API, ending in /v1; key: {KEY_VARIABLE}")
    one.add_argument("--model", required=True, help="the teacher")
    one.add_argument("-n", "--variants", type=_count, default=10, metavar="N", help="new rows of each; default 10")
    one.add_argument("--evolve", type=_whole, default=1, metavar="N", help="rewrites of each question; default 1")
    one.add_argument(
        "--reflect", type=_whole, default=0, metavar="N", help="rounds of critique of each answer; default 0"
    )
    one.add_argument("--max-tokens", type=_count, metavar="N", help="what all requests may use up")
    one.add_argument("--max-cost", type=_price, metavar="COST", help="what all requests may cost; needs prices")
    one.add_argument("--input-price", type=_price, metavar="PRICE", help="of a million prompt tokens")
    one.add_argument("--output-price", type=_price, metavar="PRICE", help="of a million reply tokens")
    one.add_argument("--held-out", type=Path, action="append", default=[], metavar="FILE", help="never to be asked")
    one.add_argument("--alike", type=share, default=0.9, metavar="SHARE", help="likeness of one question; default 0.9")
    one.add_argument("--no-near", action="store_true", help="take questions that are nearly the same")
    one.add_argument("--max-characters", type=_count, metavar="N", help="longest row")
    one.add_argument("--temperature", type=float, default=0.8, help="default 0.8")
    one.add_argument("--reply-tokens", type=_count, default=1024, metavar="N", help="longest reply; default 1024")
    one.add_argument("--seed", type=int, default=0, help="of the sampling; default 0")
    one.add_argument("--option", type=_option, action="append", default=[], metavar="NAME=JSON", help="of each request")
    one.add_argument("--at-once", type=_count, default=4, metavar="N", help="requests at a time; default 4")
    one.add_argument("--tries", type=_count, default=5, metavar="N", help="of a request; default 5")
    one.add_argument("--seconds", type=float, default=600.0, help="that a reply may take; default 600")
    one.add_argument("--dry-run", action="store_true", help="say what would be asked and cost at most, and ask nothing")
    one.set_defaults(command_function=guarded(expand_rows))


def expand_rows(options: argparse.Namespace) -> int:
    """Make the rows, or go on with them.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 1 when a seed is wrong, the teacher fails or nothing comes out, 2 when it cannot be run so.
    """
    from whetstone_artifacts.data.expansion.expand import plans_of, read_seeds

    seeds = read_seeds(options.files)
    if not seeds:
        raise ArtifactError(Reason.DATASET_EMPTY, "there is no row to start from; write 50 to 100 by hand")
    plans, budget, sampling = plans_of(seeds, options.variants), _budget(options), _sampling(options)
    if options.dry_run:
        return _dry_run(plans, sampling, budget, options)
    return _run(plans, sampling, budget, options)


def _run(plans: "list[Plan]", sampling: "Sampling", budget: "Budget", options: argparse.Namespace) -> int:
    from whetstone_artifacts.data.expansion.course import Course
    from whetstone_artifacts.data.expansion.expand import LOG_FILE, expand, write
    from whetstone_artifacts.data.expansion.ledger import Ledger
    from whetstone_artifacts.data.expansion.teacher import Teacher
    from whetstone_artifacts.data.seen import seen_rows
    from whetstone_artifacts.lock import output_lock

    folder = _folder(options.output, LOG_FILE)
    with ExitStack() as stack:
        stack.enter_context(output_lock(folder, wait_seconds=0.0))
        ledger = stack.enter_context(Ledger(folder / LOG_FILE, budget, sampling.reply_tokens))
        key = os.environ.get(KEY_VARIABLE)
        teacher = stack.enter_context(Teacher(options.url, key=key, tries=options.tries, seconds=options.seconds))
        course = Course(
            teacher,
            ledger,
            sampling,
            evolve=options.evolve,
            reflect=options.reflect,
            longest=options.max_characters,
        )
        novelty = _novelty(stack.enter_context(seen_rows()), plans, options)
        line = _Line(ledger)
        expansion = expand(course, plans, novelty, at_once=options.at_once, told=line.show)
        write(folder, expansion)
        line.end(expansion)
    return _told(folder, expansion, ledger)


def _folder(folder: Path, log: str) -> Path:
    """Return the folder of an expansion, made where it is missing.

    Raises:
        ArtifactError: It holds something else.
    """
    if folder.exists() and not (folder / log).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(Reason.OUTPUT_OCCUPIED, f"{folder} holds something else (no {log}); name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _novelty(seen: "Seen", plans: "list[Plan]", options: argparse.Namespace) -> "Novelty":
    from whetstone_artifacts.data.expansion.expand import HELD_OUT, SEED, Novelty, question_of
    from whetstone_artifacts.data.reading import read_all

    novelty = Novelty(seen, None if options.no_near else options.alike)
    for read in read_all(options.held_out):
        novelty.know(question_of(read.example), HELD_OUT, read.number)
    for plan in plans:
        if plan.number == 1:
            novelty.know(plan.seed.question, SEED, plan.seed.number)
    return novelty


def _told(folder: Path, expansion: "Expansion", ledger: "Ledger") -> int:
    from whetstone_artifacts.data.expansion.expand import DROPPED_FILE, ROWS_FILE

    print(f"{folder / ROWS_FILE}: {len(expansion.rows)} rows of {expansion.done} of {expansion.planned} variants")
    if expansion.dropped:
        parts = ", ".join(f"{count} {rule}" for rule, count in expansion.rules.most_common())
        print(f"{folder / DROPPED_FILE}: {len(expansion.dropped)} variants ({parts})")
    print(f"in all: {ledger.requests} requests, {ledger.tokens} tokens, cost {_amount(ledger.cost)}")
    if expansion.stopped:
        sys.stderr.write(f"whetstone: stopped: {expansion.stopped}\n")
    if expansion.failed:
        sys.stderr.write("whetstone: all replies are kept; run the same again to go on\n")
    return EXIT_INVALID if expansion.failed or not expansion.rows else 0


class _Line:
    """Says on standard error how far an expansion is: in one line of a terminal, else a line each tenth."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._terminal = sys.stderr.isatty()
        self._tenth = 0

    def show(self, expansion: "Expansion") -> None:
        """Say it."""
        tenth = 10 * expansion.done // expansion.planned
        if self._terminal or tenth > self._tenth:
            text = (
                f"{expansion.done} of {expansion.planned} variants, {len(expansion.rows)} rows,"
                f" {len(expansion.dropped)} dropped, {self._ledger.tokens} tokens, cost {_amount(self._ledger.cost)}"
            )
            sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
            sys.stderr.flush()
        self._tenth = tenth

    def end(self, expansion: "Expansion") -> None:
        """Leave the line."""
        if self._terminal and expansion.done:
            sys.stderr.write("\n")


def _dry_run(plans: "list[Plan]", sampling: "Sampling", budget: "Budget", options: argparse.Namespace) -> int:
    from whetstone_artifacts.data.expansion.forecast import forecast
    from whetstone_artifacts.data.expansion.prompts import ask_question

    told = forecast(plans, sampling, evolve=options.evolve, reflect=options.reflect)
    print("The first request would be:\n")
    print(json.dumps(sampling.body(ask_question(plans[0].seed, plans[0].others), plans[0].number), indent=1))
    print(f"\n{len(plans)} variants of {len(plans) // options.variants} seeds; at most")
    for step, count in told.requests.items():
        print(f"  {count:>10} requests of step {step}")
    print(f"  {told.prompt_tokens:>10} prompt tokens, counted as one for each byte")
    print(f"  {told.reply_tokens:>10} reply tokens")
    if _priced(options):
        print(f"  {_amount(budget.price(told.prompt_tokens, told.reply_tokens)):>10} cost")
    for limit, unit in ((budget.tokens, "tokens"), (budget.cost, "cost")):
        if limit is not None:
            print(f"stops before {limit} {unit}")
    return 0


def _budget(options: argparse.Namespace) -> "Budget":
    from whetstone_artifacts.data.expansion.ledger import Budget

    if options.max_cost is not None and not _priced(options):
        raise ArtifactError(
            Reason.INVALID_SPEC, "--max-cost needs --input-price and --output-price, of a million tokens"
        )
    prices = (options.input_price or Decimal(0), options.output_price or Decimal(0))
    return Budget(tokens=options.max_tokens, cost=options.max_cost, input_price=prices[0], output_price=prices[1])


def _priced(options: argparse.Namespace) -> bool:
    return options.input_price is not None and options.output_price is not None


def _sampling(options: argparse.Namespace) -> "Sampling":
    from whetstone_artifacts.data.expansion.course import Sampling

    return Sampling(
        model=options.model,
        temperature=options.temperature,
        reply_tokens=options.reply_tokens,
        seed=options.seed,
        options=dict(options.option),
    )


def _amount(cost: Decimal) -> str:
    return format(cost.quantize(Decimal("0.0001")).normalize(), "f")


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _price(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not value.is_finite() or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is no price; give 0 or more")
    return value


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=JSON, as in top_p=0.9 or max_tokens=null") from None
