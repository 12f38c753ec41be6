"""What a BenchmarkRun will cost, said before it begins."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString


class RunEstimate(ApiModel):
    """What the tokens of all trials will cost at `spec.prices`, as far as it is known beforehand."""

    prompt_tokens: int | None = None
    """Prompt tokens of all trials, as many as the baseline's took; absent without one."""
    completion_tokens: int | None = None
    """The same of completion tokens."""
    cost: DecimalString | None = None
    """What these cost."""
    most: DecimalString | None = None
    """What the trials can cost at most, by `spec.agent.budget.runTokens`."""
    basis: Annotated[str, Field(max_length=512)]
    """What the figures stand on, or why there are none."""
