"""What does the training of a LoRATrainingJob: TRL as it is, or with Unsloth's kernels."""

from enum import StrEnum

from whetstone_api.schema import Rule


class Backend(StrEnum):
    """What does the training."""

    TRL = "TRL"
    UNSLOTH = "Unsloth"


BACKEND_RULES = (
    Rule(
        rule="self.backend != 'Unsloth' || self.method == 'SFT'",
        message="backend Unsloth trains with method SFT only; use backend TRL",
    ),
    Rule(
        rule="self.backend != 'Unsloth' || !has(self.initAdapter)",
        message="backend Unsloth makes new adapters only; leave out initAdapter or use backend TRL",
    ),
    Rule(
        rule=(
            "self.backend != 'Unsloth' || !has(self.distributed) ||"
            " (self.distributed.nodes == 1 && (!has(self.distributed.processesPerNode) ||"
            " self.distributed.processesPerNode == 1))"
        ),
        message="backend Unsloth trains in one process; leave out distributed or use backend TRL",
    ),
    Rule(
        rule=(
            "self.backend != 'Unsloth' ||"
            " (self.plan.packing == 'Auto' && self.plan.attention == 'Auto' && self.plan.compile == 'Auto')"
        ),
        message="backend Unsloth chooses packing, attention and compile itself; leave them out of plan",
    ),
)
"""What Unsloth does not do for us."""
