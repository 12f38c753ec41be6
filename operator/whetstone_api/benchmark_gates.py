"""Conditions on the result of a BenchmarkRun."""

from enum import StrEnum
from typing import ClassVar

from whetstone_api.schema import ApiModel, DecimalString, Rule


class GateMetric(StrEnum):
    """Figures that a gate can look at."""

    MEAN = "Mean"
    STRICT_MEAN = "StrictMean"
    COVERAGE = "Coverage"


class GateSpec(ApiModel):
    """A condition on the result."""

    metric: GateMetric
    """Figure to look at."""
    minimum: DecimalString | None = None
    """Lowest value that passes."""
    minimum_improvement: DecimalString | None = None
    """The lower end of the interval of the paired difference to the baseline must be above this."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.minimum) != has(self.minimumImprovement)",
            message="give exactly one of minimum and minimumImprovement",
        ),
        Rule(
            rule="!has(self.minimumImprovement) || self.metric == 'Mean'",
            message="minimumImprovement works on Mean only; use minimum for StrictMean and Coverage",
        ),
    )
