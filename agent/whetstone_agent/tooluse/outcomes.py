"""What a step was, and how an episode ended."""

from enum import StrEnum


class StepCategory(StrEnum):
    """What a step was worth."""

    EXPECTED = "Expected"
    """The next call of the ground truth."""
    HELPFUL = "Helpful"
    """Another call of the ground truth that was not made yet."""
    UNHELPFUL = "Unhelpful"
    """A call that worked and is not in the ground truth, or a search that did not find what it was for."""
    REPEATED = "Repeated"
    """The same call as an earlier one."""
    REJECTED = "Rejected"
    """The API refuses what the arguments ask for (4xx)."""
    INVALID_ARGUMENTS = "InvalidArguments"
    """They do not fit the tool's schema; nothing was called."""
    MALFORMED = "Malformed"
    """No action can be read from it."""
    UNKNOWN_TOOL = "UnknownTool"
    """No tool of that name exists."""
    UNAVAILABLE_TOOL = "UnavailableTool"
    """It exists, and the instance does not offer it."""
    FORBIDDEN = "Forbidden"
    """The policy forbids it; nothing was called, and the episode cannot succeed any more."""
    API_FAILED = "ApiFailed"
    """The API did not do its part: no doing of the agent's."""
    CORRECT = "Correct"
    """The right answer, or rightly said that there is none to be had."""
    INCORRECT = "Incorrect"
    """A wrong answer."""
    WRONGLY_DECLINED = "WronglyDeclined"
    """Said that it cannot answer, though it could have."""
    SHOULD_DECLINE = "ShouldDecline"
    """Answered, though what it takes was unavailable or forbidden."""

    UNJUDGED = "Unjudged"
    """An answer on which the judge said nothing that can be used: no doing of the agent's."""

    @property
    def optimal(self) -> bool:
        """Whether a learner should imitate the step."""
        return self in (StepCategory.EXPECTED, StepCategory.HELPFUL, StepCategory.CORRECT)

    @property
    def excused(self) -> bool:
        """Whether something else than the agent failed."""
        return self in (StepCategory.API_FAILED, StepCategory.UNJUDGED)


class End(StrEnum):
    """How an episode ended."""

    FINAL = "Final"
    """The agent gave its answer."""
    HORIZON = "Horizon"
    """Its steps are used up."""
    LOOP = "Loop"
    """It did the same again and again."""
    CONTEXT_LENGTH = "ContextLength"
    """The conversation outgrew the model's context."""
    BUDGET_EXCEEDED = "BudgetExceeded"
    """The tokens of the episode are used up."""
    TIME_EXCEEDED = "TimeExceeded"
    """The time of the episode is used up."""
    MODEL_FAILED = "ModelFailed"
    """The model's server did not answer, or refused."""
    HOPELESS = "Hopeless"
    """The overseer said that more steps would not help."""
    JUDGE_UNCLEAR = "JudgeUnclear"
    """The judge of the answer said neither yes nor no."""
    JUDGE_FAILED = "JudgeFailed"
    """The judge's server did not answer."""
    API_UNAVAILABLE = "ApiUnavailable"
    """The API was down, too slow or failing."""
    API_NOT_JSON = "ApiNotJson"
    """The API answered something that is no JSON."""
    API_REFUSED = "ApiRefused"
    """The API refuses the credentials."""

    @property
    def void(self) -> bool:
        """Whether it says nothing about the agent."""
        return self in _VOID


_VOID = frozenset(
    {
        End.API_UNAVAILABLE,
        End.API_NOT_JSON,
        End.API_REFUSED,
        End.MODEL_FAILED,
        End.JUDGE_UNCLEAR,
        End.JUDGE_FAILED,
    }
)
