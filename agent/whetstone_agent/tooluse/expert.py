"""When the expert, who knows the ground truth, acts in the agent's place."""

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Annotated

from pydantic import Field, model_validator
from whetstone_api.wire import WireModel

from whetstone_agent.tooluse.outcomes import StepCategory


class ExpertMode(StrEnum):
    """When the expert acts."""

    NONE = "None"
    """Never."""
    GROUND_TRUTH = "GroundTruth"
    """At every step."""
    RANDOM = "Random"
    """By the toss of a coin."""
    INFORMED = "Informed"
    """Where the agent gets nowhere."""


class ExpertSettings(WireModel):
    """When the expert acts, and what is kept for learning."""

    mode: ExpertMode = ExpertMode.NONE
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that it acts, with `Random`."""
    seed: int = 0
    """Seed of the coin; each step of each instance has a toss of its own, so that a resumed run goes on alike."""
    initial_limit: Annotated[int, Field(ge=0)] = 2
    """Steps that the agent acts unaided at first, with `Informed`."""
    recent_limit: Annotated[int, Field(ge=1)] = 2
    """Latest steps that are looked at, with `Informed`: when none of them got anywhere, the expert acts."""
    alternates: bool = False
    """Whether the action of the one who does not act is kept too, at every step."""
    branches: Annotated[int, Field(ge=0)] = 0
    """Steps of an episode at most from which the other way is gone to its end too; it takes `alternates`."""

    @model_validator(mode="after")
    def _branches_need_alternates(self) -> "ExpertSettings":
        if self.branches and not (self.alternates and self.mode is not ExpertMode.NONE):
            raise ValueError("branches need alternates, and an expert")
        return self

    def acts(self, instance: str, steps: Sequence[StepCategory]) -> bool:
        """Say whether the expert does the next step.

        Args:
            instance: Id of the instance.
            steps: What the steps so far were.
        """
        match self.mode:
            case ExpertMode.NONE:
                return False
            case ExpertMode.GROUND_TRUTH:
                return True
            case ExpertMode.RANDOM:
                return Random(f"{self.seed}/{instance}/{len(steps)}").random() < self.epsilon  # noqa: S311
        recent = steps[-self.recent_limit :]
        stuck = len(recent) == self.recent_limit and not any(one.optimal for one in recent)
        return len(steps) >= self.initial_limit and stuck
