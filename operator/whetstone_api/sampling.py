"""Sampling that a server gives to requests which do not say it themselves."""

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule


class DefaultSampling(ApiModel):
    """Values for fields that a request leaves out; what a request says wins. A change restarts nothing."""

    temperature: DecimalString | None = None
    """Sampling temperature, 0 to 2."""
    top_p: DecimalString | None = None
    """Share of the probability that is sampled from, above 0 and at most 1."""
    max_tokens: Annotated[int, Field(ge=1, le=4194304)] | None = None
    """Tokens of an answer at most."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.temperature) || double(self.temperature) <= 2.0",
            message="temperature must be at most 2",
        ),
        Rule(
            rule="!has(self.topP) || (double(self.topP) > 0.0 && double(self.topP) <= 1.0)",
            message="topP must be above 0 and at most 1",
        ),
    )

    def to_request(self) -> dict[str, int | float]:
        """Return the values by their field in an OpenAI request."""
        texts = {"temperature": self.temperature, "top_p": self.top_p}
        values: dict[str, int | float] = {
            name: float(Decimal(text)) for name, text in texts.items() if text is not None
        }
        return values if self.max_tokens is None else {**values, "max_tokens": self.max_tokens}
