"""Run programs and turn their failures into one readable error."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class DevError(Exception):
    """A failure whose message says what went wrong and what to do; shown without a traceback."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    feed: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run a program to its end and return its standard output.

    With `log`, standard output and error go to that file instead (the returned text is empty) and the
    error names the file. `feed` is written to standard input, which is closed otherwise.

    Raises:
        DevError: the program is missing, took longer than `timeout` seconds, or ended with an error;
            the message holds the last lines that it wrote.
    """
    arguments = [str(part) for part in command]
    source = {"input": feed} if feed is not None else {"stdin": subprocess.DEVNULL}
    try:
        if log is None:
            done = subprocess.run(
                arguments, cwd=cwd, env=env, text=True, capture_output=True, timeout=timeout, check=False, **source
            )
            output, noise = done.stdout, done.stderr or done.stdout
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("w") as sink:
                done = subprocess.run(
                    arguments,
                    cwd=cwd,
                    env=env,
                    text=True,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                    check=False,
                    **source,
                )
            output, noise = "", log.read_text(errors="replace")
    except FileNotFoundError as error:
        raise DevError(f"{arguments[0]}: program not found; `make cluster` installs what the cluster needs") from error
    except subprocess.TimeoutExpired as error:
        raise DevError(f"{' '.join(arguments[:4])} ...: no end after {timeout} s") from error
    if done.returncode != 0:
        tail = "\n    ".join(noise.strip().splitlines()[-12:])
        where = f" (log: {log})" if log else ""
        raise DevError(f"{' '.join(arguments[:6])} ...: exit code {done.returncode}{where}\n    {tail}")
    return output


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether a program runs and ends with exit code 0; its output is dropped."""
    try:
        run(command)
    except DevError:
        return False
    return True
