"""Exit codes of the command."""

from typing import Final

EXIT_INVALID: Final = 1
"""What was named is not as it should be."""
EXIT_USAGE: Final = 2
"""The command cannot be run so."""
