"""What a judge's answers make of a run's conditions. Pure."""

from whetstone_api.benchmark_judge import Judged
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.gates import Judgement


def judge_state(judged: Judged) -> Judgement:
    """Return the condition Judged."""
    told = f"{judged.model} gave an opinion on {judged.trials} trials, {judged.unparsed} answers were none"
    if not judged.unanswered:
        return Judgement(status="True", reason=Reason.JUDGED, message=told)
    why = judged.stopped or "the judge did not answer"
    return Judgement(
        status="False",
        reason=Reason.JUDGE_INCOMPLETE,
        message=f"{told}, {judged.unanswered} trials have no answer: {why}; to ask about those again, create the run"
        " again with the same output",
    )
