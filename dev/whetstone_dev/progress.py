"""Progress lines: what is being done, how long it usually takes, and how long it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one progress line at once, also when the output is a file or a pipe."""
    print(f"[whetstone] {text}", flush=True)


@contextmanager
def stage(what: str, *, expected: str = "") -> Iterator[None]:
    """Announce `what`, and on the way out say how many seconds it took or that it failed.

    `expected` is how long it usually takes, in words; empty for what takes moments.
    """
    say(f"{what}{f' (about {expected})' if expected else ''} ...")
    start = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - start:.1f} s")
        sys.stdout.flush()
        raise
    say(f"{what}: done in {time.monotonic() - start:.1f} s")
