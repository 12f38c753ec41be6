"""What an expansion would ask, and what that can cost at most. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from whetstone_artifacts.data.expansion import prompts
from whetstone_artifacts.data.expansion.course import Plan, Sampling
from whetstone_artifacts.data.expansion.ledger import most_tokens
from whetstone_artifacts.data.expansion.prompts import OPERATIONS, Prompt


@dataclass(kw_only=True)
class Forecast:
    """Figures of what would be asked, if every variant went all the way.

    Args:
        requests: By step.
        prompt_tokens: At most: a token for each byte of what is known, and the longest reply for what is not yet.
        reply_tokens: At most.
    """

    requests: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    reply_tokens: int = 0


def forecast(plans: Sequence[Plan], sampling: Sampling, *, evolve: int, reflect: int) -> Forecast:
    """Return what would be asked.

    Args:
        plans: What is to be made.
        sampling: How it is asked.
        evolve: Rewrites of each question.
        reflect: Rounds of critique and mending.
    """
    told = Forecast()
    nothing = [{"role": "assistant", "content": ""}]
    longest = max(OPERATIONS, key=len)
    for plan in plans:
        seed = plan.seed
        steps: list[tuple[str, int, Prompt, int]] = [
            ("question", 1, prompts.ask_question(seed, plan.others), 0),
            ("evolve", evolve, prompts.evolve(seed, "", longest), 1),
            ("answer", 1, prompts.ask_answer(seed, ""), 1),
            ("critique", reflect, prompts.criticise(seed, "", nothing), 2),
            ("revision", reflect, prompts.revise(seed, "", nothing, ""), 3),
        ]
        for step, count, prompt, replies in steps:
            if count:
                known = most_tokens(sampling.body(prompt, plan.number))
                told.requests[step] += count
                told.prompt_tokens += count * (known + replies * sampling.reply_tokens)
                told.reply_tokens += count * sampling.reply_tokens
    return told
