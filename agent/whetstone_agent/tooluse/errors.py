"""What can go wrong with what a user brings, and with the API that a tool calls."""

from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 20


class EnvironmentDataError(ValueError):
    """Files of an environment that cannot be used; the message names file, instance, field and fix.

    Args:
        problems: One sentence each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        more = f"\n... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        super().__init__("\n".join(problems[:_SHOWN]) + more)


class ApiError(Exception):
    """The API did not do its part: no doing of the agent's."""


class ApiUnavailableError(ApiError):
    """It is down, too slow, or fails by itself (5xx), also when asked again."""


class ApiNotJsonError(ApiError):
    """It answers something that is no JSON, such as the HTML of a proxy's page."""


class ApiRefusedError(ApiError):
    """It refuses the credentials (401, 403): asking again helps nobody."""


class NoIndexError(ApiError):
    """A collection has no index in Elasticsearch."""
