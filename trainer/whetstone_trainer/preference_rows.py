"""Pairs as a model reads them, and what is scored of them.

Whatever a pair's form, only the turns of the assistant after the prompt are scored; what its tools answer never is.
Pure.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_preference import PreferenceSpec
from whetstone_api.training_settings import Method
from whetstone_artifacts.data.formats import MARK, Message
from whetstone_artifacts.data.pairs import Pair

from whetstone_trainer.render import Rendered, Renderer, RewrittenError, TemplateError, Tools, is_optimal

PAIRS = "pairs/1"
"""How pairs are read (`whetstone_artifacts.data.pairs`) and masked (this module); another way is another recipe."""


@dataclass(frozen=True, kw_only=True)
class RenderedPair(Rendered):
    """A pair as the model reads it: the chosen side is the row itself.

    Args:
        rejected: The rejected side.
    """

    rejected: Rendered

    @property
    def rejected_ids(self) -> Sequence[int]:
        """Token ids of the rejected side."""
        return self.rejected.input_ids

    @property
    def rejected_labels(self) -> "array[int]":
        """Labels of the rejected side."""
        return self.rejected.labels

    @property
    def tokens(self) -> int:
        """Tokens of both sides."""
        return super().tokens + self.rejected.tokens

    @property
    def longest(self) -> int:
        """Tokens of the longer side."""
        return max(super().longest, self.rejected.longest)

    @property
    def loss_tokens(self) -> int:
        """Tokens of both sides that are scored."""
        return super().loss_tokens + self.rejected.loss_tokens


def preference_of(config: TrainingConfig) -> PreferenceSpec | None:
    """Return how the job compares pairs; None for a job that learns from conversations."""
    if config.method is not Method.DPO:
        return None
    return config.preference or PreferenceSpec()


def render_pair(renderer: Renderer, pair: Pair, *, tools: Tools, mask_suboptimal: bool = False) -> RenderedPair:
    """Render both sides and find what is scored in them.

    Args:
        renderer: Renders with the model's template.
        pair: The pair.
        tools: Functions that it offers the model.
        mask_suboptimal: Raise no turn that is marked; of a rejected side with marks, lower nothing but these.

    Raises:
        TemplateError: With the side and the fix.
    """
    wanted: dict[str, Callable[[Message], bool]] = {}
    if mask_suboptimal:
        wanted["chosen"] = is_optimal
        if any(MARK in message for message in pair.rejected):
            wanted["rejected"] = _is_suboptimal
    rendered = {}
    for side, messages in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        try:
            found = renderer.render(
                [*pair.prompt, *messages], tools=tools, since=len(pair.prompt), only=wanted.get(side)
            )
        except RewrittenError as error:
            raise TemplateError(
                f"`{side}`: the chat template writes a turn otherwise once more messages follow, so that a trajectory"
                " cannot be scored at once; make pairs of single turns (preference.granularity Step)"
            ) from error
        except TemplateError as error:
            raise TemplateError(f"`{side}`, with the prompt before it: {error}") from error
        if not found.loss_tokens:
            raise TemplateError(
                f"`{side}` has no token to score; write an answer that is not marked, or remove the row"
            )
        rendered[side] = found
    chosen = rendered["chosen"]
    if chosen.input_ids == rendered["rejected"].input_ids:
        raise TemplateError("`chosen` and `rejected` are the same once rendered; remove the row")
    rejected = rendered["rejected"]
    return RenderedPair(
        input_ids=chosen.input_ids, spans=chosen.spans, turn=chosen.turn, asked=chosen.asked, rejected=rejected
    )


def _is_suboptimal(message: Message) -> bool:
    return not is_optimal(message)
