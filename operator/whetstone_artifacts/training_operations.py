"""How many floating-point operations the training of a LoRA adapter takes. Pure.

Of a token, a forward pass takes two operations for each number of a matrix that it is multiplied with (layers and
head), and two for each number of the keys and values before it, of which there are half a row's on average. The
backward pass takes as many: through frozen weights only the gradient of the activations is computed. Activations that
are computed again cost another forward pass, and so does DPO's reference. The adapter itself is small beside the base,
and left out.
"""

from dataclasses import dataclass

from whetstone_api.model_facts import ModelFacts


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is computed.

    Args:
        tokens: Tokens of all steps.
        row: Tokens of a usual row.
        checkpointing: Whether activations are computed again.
        reference: Whether a reference passes over the same rows.
    """

    tokens: int
    row: int
    checkpointing: bool = False
    reference: bool = False


def training_operations(facts: ModelFacts, work: Work) -> int | None:
    """Return the operations; None for weights that are stored packed, whose matrices' sizes are not known.

    Args:
        facts: The base model.
        work: What is computed.
    """
    if facts.quantization is not None:
        return None
    matrices = facts.linear_parameters + facts.hidden * facts.vocabulary
    attention = facts.layers * facts.heads * facts.head_width * work.row
    passes = 2 + work.checkpointing + work.reference
    return passes * 2 * (matrices + attention) * work.tokens
