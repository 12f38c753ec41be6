"""Evaluation of a LoRATrainingJob on data that it does not learn from."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule, VolumeName

OpenShare = Annotated[str, Field(max_length=8, pattern=r"^0\.[0-9]*[1-9][0-9]*$")]
"""A share above 0 and below 1, as text."""


class EvaluationSpec(ApiModel):
    """Rows that are held out of the training and measured instead."""

    dataset: VolumeName | None = None
    """Name of an entry of `datasets` that is used for this alone."""
    share: OpenShare | None = None
    """Instead: share of all rows, by whole tasks, so that no task is on both sides."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.dataset) != has(self.share)", message="give exactly one of evaluation.dataset and share"),
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
