"""Options of an agent by Harbor's own names: read from text, and checked before the first trial."""

import json
from collections.abc import Mapping
from typing import Any

from harbor.agents.options import AgentOptions
from pydantic import ValidationError
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure

FIELD = "spec.agent.options"


def read_options(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return options with their values: a text that is JSON is what it says, any other is itself."""
    return {name: _read(text) for name, text in texts.items()}


def check_options(texts: Mapping[str, str], *, model: type[AgentOptions], managed: frozenset[str], agent: str) -> None:
    """Refuse options that the agent does not know or cannot take, and those that are not the user's to set.

    Args:
        texts: `spec.agent.options`.
        model: What the agent takes.
        managed: Names that the runner sets.
        agent: The agent's name, for the message.

    Raises:
        RunFailure: `INVALID_SPEC`, naming every option that is wrong.
    """
    wrong = [f"{FIELD}.{name}: the runner sets it; leave it out" for name in sorted(managed & texts.keys())]
    free = {name: value for name, value in read_options(texts).items() if name not in managed}
    try:
        model.model_validate(free)
    except ValidationError as error:
        known = ", ".join(sorted(model.model_fields.keys() - managed))
        wrong += [
            f"{FIELD}.{'.'.join(map(str, one['loc']))}: agent {agent} has no such option (it has: {known})"
            if one["type"] == "extra_forbidden"
            else f"{FIELD}.{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)
        ]
    if wrong:
        raise RunFailure(Reason.INVALID_SPEC, "; ".join(wrong))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
