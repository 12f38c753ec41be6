"""When a training that makes no step is taken for hung, by the operator and by the trainer itself."""

import re
from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel

LEAST_SECONDS = 1800.0
"""Without `spec.stall`: a step that saves, evaluates or compiles takes long, too."""
STEPS = 20.0
"""Without `spec.stall`: that many times the time of a step so far."""
_STEP_LINE = re.compile(r"\bstep (\d+) of \d+ is done$", re.MULTILINE)


class StallSpec(ApiModel):
    """How long a step may take."""

    minutes: Annotated[int, Field(ge=1, le=10080)]
    """Minutes without a step after which the pods are started again, once."""


def usual_limit(seconds_a_step: float) -> float:
    """Return for how many seconds there may be no step, where the user says nothing.

    Args:
        seconds_a_step: What a step has taken so far; 0 where that is not known.
    """
    return max(LEAST_SECONDS, STEPS * seconds_a_step)


def step_line(step: int, max_steps: int) -> str:
    """Return what the trainer logs now and then: it tells that the training goes on where no report comes through."""
    return f"step {step} of {max_steps} is done"


def last_step(log: str) -> int | None:
    """Return the newest step that a trainer's log tells; None where it tells none."""
    found = _STEP_LINE.findall(log)
    return int(found[-1]) if found else None
