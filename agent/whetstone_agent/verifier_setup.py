"""A verifier that could not install what it needs has graded nothing, whatever reward it left.

Many test scripts fetch a package manager or a test runner first, and write reward 0 when the tests then do not start.
That is the network's doing. It is taken for it only where the script's output says that a download or an installation
failed and holds no sign that any test ran.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

VERIFIER_SETUP: Final = "VerifierSetupError"
"""Error of such a trial; it is void."""
_OUTPUT: Final = "verifier/test-stdout.txt"
_READ_BYTES: Final = 1 << 20
_FAILED: Final = re.compile(
    rb"Could not resolve host|Temporary failure in name resolution|Temporary failure resolving|Unable to locate package"
    rb"|E: Failed to fetch|E: Unable to fetch|curl: \((?:5|6|7|28|35|52|56)\)|wget: unable to resolve"
    rb"|No matching distribution found|Failed to establish a new connection|error: Failed to (?:fetch|download)"
    rb"|(?:uvx?|pytest|pip3?): (?:command )?not found|No module named '?(?:pytest|pip)\b"
)
_TESTS_RAN: Final = re.compile(
    rb"\bcollected \d+ items?|\b\d+ (?:passed|failed|error|errors|skipped)\b|test session starts|^(?:PASSED|FAILED) ",
    re.MULTILINE,
)


def honest_result(result: Mapping[str, Any], trial: Path) -> Mapping[str, Any]:
    """Return Harbor's result of a trial; a reward of 0 by a verifier that never came to grade is an error instead.

    Args:
        result: The content of its `result.json`.
        trial: The trial's folder.
    """
    rewards = (result.get("verifier_result") or {}).get("rewards") or {}
    if result.get("exception_info") or not rewards or any(float(value) > 0 for value in rewards.values()):
        return result
    return {**result, "exception_info": {"exception_type": VERIFIER_SETUP}} if setup_failed(trial) else result


def setup_failed(trial: Path) -> bool:
    """Return whether the verifier of a trial could not install what it needs.

    Args:
        trial: The trial's folder.
    """
    outputs = [trial / _OUTPUT, *sorted(trial.glob(f"steps/*/{_OUTPUT}"))]
    return any(_says_so(path) for path in outputs if path.is_file())


def _says_so(path: Path) -> bool:
    with path.open("rb") as stream:
        text = stream.read(_READ_BYTES)
    return _FAILED.search(text) is not None and _TESTS_RAN.search(text) is None
