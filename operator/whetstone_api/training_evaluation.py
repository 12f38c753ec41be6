"""Evaluation of a LoRATrainingJob on data that it does not learn from."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule, VolumeName

OpenShare = Annotated[str, Field(max_length=8, pattern=r"^0\.[0-9]*[1-9][0-9]*$")]
"""A share above 0 and below 1, as text."""


class EarlyStoppingSpec(ApiModel):
    """Ends the training once the evaluations get no better, and publishes the best step instead of the last one."""

    metric: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z][A-Za-z0-9]*$")] = "evalLoss"
    """A metric that the training logs, such as evalLoss or evalMeanTokenAccuracy. Losses and entropies are to fall, all
    others to rise."""
    patience: Annotated[int, Field(ge=1, le=1000)] = 3
    """Evaluations in a row, none better than the best before them, after which the training ends."""


class EvaluationSpec(ApiModel):
    """Rows that are held out of the training and measured instead."""

    dataset: VolumeName | None = None
    """Name of an entry of `datasets` that is used for this alone."""
    share: OpenShare | None = None
    """Instead: share of all rows, by whole tasks, so that no task is on both sides."""
    every_steps: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Optimizer steps between evaluations; the last step is always evaluated."""
    early_stopping: EarlyStoppingSpec | None = None
    """Ends the training when it stops getting better; the last step is published when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.dataset) != has(self.share)", message="give exactly one of evaluation.dataset and share"),
        Rule(
            rule="!has(self.earlyStopping) || has(self.everySteps)",
            message="evaluation.earlyStopping needs evaluation.everySteps",
        ),
    )


class EvaluationReport(ApiModel):
    """The rows that are held out."""

    rows: int
    """How many."""
    tokens: int
    """Tokens in them."""
    loss_tokens: int
    """Tokens of these that are predicted and measured."""
    longest: int
    """Tokens of the longest row."""
