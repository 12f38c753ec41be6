"""Exit codes of the command."""

import sys
from typing import Final

from whetstone_artifacts.errors import ArtifactError

EXIT_INVALID: Final = 1
"""What was named is not as it should be."""
EXIT_USAGE: Final = 2
"""The command cannot be run so."""


def refused(error: ModuleNotFoundError | ArtifactError) -> int:
    """Say why a command cannot do its work, and return its exit code."""
    if isinstance(error, ArtifactError):
        sys.stderr.write(f"whetstone: {error.message}\n")
        return EXIT_INVALID
    sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[cli]\n")
    return EXIT_USAGE
