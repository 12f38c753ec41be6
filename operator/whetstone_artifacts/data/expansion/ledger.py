"""Every prompt, reply and cost of an expansion, in a file: what was answered is never asked again.

A line is written and brought to the disk before its reply is used. A line that a kill cut off is dropped when the file
is opened again.
"""

import json
import os
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from whetstone_api.digests import canonical_digest
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.data.expansion.teacher import Reply
from whetstone_artifacts.errors import ArtifactError

_MILLION: Final = Decimal(1_000_000)
_MARKS: Final = 64
"""Tokens that a chat template adds to a prompt, at most."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What an expansion may use up.

    Args:
        tokens: Prompt and reply tokens of all requests at most; None for any number.
        cost: What they may cost at most; None for any.
        input_price: Price of a million prompt tokens.
        output_price: Price of a million reply tokens.
    """

    tokens: int | None = None
    cost: Decimal | None = None
    input_price: Decimal = Decimal(0)
    output_price: Decimal = Decimal(0)

    def price(self, prompt: int, reply: int) -> Decimal:
        """Return what tokens cost."""
        return (prompt * self.input_price + reply * self.output_price) / _MILLION


class BudgetSpentError(Exception):
    """The next request could go beyond the budget."""


def most_tokens(body: dict[str, Any]) -> int:
    """Return the most tokens that a prompt can have: a tokenizer of bytes makes at most one of each byte."""
    return len(json.dumps(body["messages"], ensure_ascii=False).encode(errors="surrogatepass")) + _MARKS


class Ledger:
    """The file, and what is spent of the budget. Threads may share it.

    Args:
        path: The file.
        budget: What may be used up, what the file holds already included.
        longest_reply: Tokens of one reply at most.

    Raises:
        ArtifactError: The file holds something else.
        OSError: It cannot be read or written.
    """

    def __init__(self, path: Path, budget: Budget, longest_reply: int) -> None:
        self._path = path
        self._budget = budget
        self._longest_reply = longest_reply
        self._lock = threading.Lock()
        self._replies: dict[str, Reply] = {}
        self._reserved_tokens, self._reserved_cost = 0, Decimal(0)
        self.tokens, self.cost, self.requests = 0, Decimal(0), 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def find(self, variant: str, step: str, body: dict[str, Any]) -> Reply | None:
        """Return the reply that a request had."""
        return self._replies.get(_key(variant, step, body))

    def reserve(self, body: dict[str, Any]) -> tuple[int, Decimal]:
        """Set aside what a request can use up, and return it for `record` or `fail`.

        Raises:
            BudgetSpentError: So much is not left.
        """
        prompt, reply = most_tokens(body), self._longest_reply
        held = prompt + reply, self._budget.price(prompt, reply)
        with self._lock:
            tokens, cost = self.tokens + self._reserved_tokens + held[0], self.cost + self._reserved_cost + held[1]
            if self._budget.tokens is not None and tokens > self._budget.tokens:
                raise BudgetSpentError
            if self._budget.cost is not None and cost > self._budget.cost:
                raise BudgetSpentError
            self._reserved_tokens += held[0]
            self._reserved_cost += held[1]
        return held

    def record(self, variant: str, step: str, body: dict[str, Any], reply: Reply, held: tuple[int, Decimal]) -> None:
        """Keep a reply; one that does not say what it used counts as the most that it can have used.

        Raises:
            OSError: It cannot be written.
        """
        prompt = most_tokens(body) if reply.prompt_tokens is None else reply.prompt_tokens
        written = self._longest_reply if reply.reply_tokens is None else reply.reply_tokens
        cost, key = self._budget.price(prompt, written), _key(variant, step, body)
        entry = {
            "key": key,
            "variant": variant,
            "step": step,
            "request": body,
            "reply": reply.text,
            "finish": reply.finish,
            "promptTokens": prompt,
            "replyTokens": written,
            "measured": None not in (reply.prompt_tokens, reply.reply_tokens),
            "cost": str(cost),
            "seconds": round(reply.seconds, 3),
        }
        with self._lock:
            self._write(entry)
            self._release(held)
            self._take(entry)

    def fail(self, variant: str, step: str, body: dict[str, Any], failure: str, held: tuple[int, Decimal]) -> None:
        """Note that a request was not answered; it is asked again next time.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            self._write({"variant": variant, "step": step, "request": body, "failure": failure})
            self._release(held)

    def _release(self, held: tuple[int, Decimal]) -> None:
        self._reserved_tokens -= held[0]
        self._reserved_cost -= held[1]

    def _take(self, entry: dict[str, Any]) -> None:
        self._replies[entry["key"]] = Reply(text=entry["reply"], finish=entry["finish"])
        self.tokens += entry["promptTokens"] + entry["replyTokens"]
        self.cost += Decimal(entry["cost"])
        self.requests += 1

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)

    def _read(self) -> None:
        whole = 0
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    entry = json.loads(line)
                    if "failure" not in entry:
                        self._take(entry)
                except (ValueError, LookupError, TypeError) as error:
                    message = f"{self._path}, line {number}, is none of an expansion's; name another folder"
                    raise ArtifactError(Reason.OUTPUT_OCCUPIED, message) from error
        os.ftruncate(self._descriptor, whole)


def _key(variant: str, step: str, body: dict[str, Any]) -> str:
    return canonical_digest({"variant": variant, "step": step, "body": body})
