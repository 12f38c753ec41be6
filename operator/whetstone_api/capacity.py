"""What the engine reserves for adapters: fixed at its start, given as numbers or found from the adapters served."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule

AUTO = "Auto"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Bounds of the rank that vLLM knows (`--max-lora-rank`), ascending."""
MAX_SLOTS = 64
"""Most adapters in one batch."""
DEFAULT_RANK: Final = 16
DEFAULT_SLOTS = 4

AutoText = Annotated[str, Field(max_length=4, pattern="^Auto$")]


class AdapterHeadroom(ApiModel):
    """Room that Auto keeps for adapters that are not there yet. It costs memory, and rank costs speed."""

    loras: Annotated[int, Field(ge=0, le=MAX_SLOTS)] = DEFAULT_SLOTS
    """Slots beyond the adapters of the server when its engines start."""
    rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = DEFAULT_RANK
    """Rank that loads in any case, without a restart."""


class AdapterCapacity(ApiModel):
    """What the engine reserves for adapters."""

    max_loras: Annotated[int, Field(ge=1, le=MAX_SLOTS)] | AutoText = DEFAULT_SLOTS
    """Adapters in one batch; Auto: those of the server and the headroom."""
    max_rank: Literal["Auto", 1, 8, 16, 32, 64, 128, 256, 320, 512] = DEFAULT_RANK
    """Highest rank that can be loaded, memory is reserved for it; Auto: what the server's adapters need."""
    max_cpu_loras: Annotated[int, Field(ge=1, le=128)] | AutoText = AUTO
    """Adapters that stay in the engine's main memory; Auto: all of them. The others are read from disk when asked."""
    headroom: AdapterHeadroom | None = None
    """Room that Auto keeps for adapters that are not there yet."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.headroom) || type(self.maxLoras) == string || type(self.maxRank) == string",
            message="headroom has no use without Auto; set maxRank or maxLoras to Auto, or leave headroom out",
        ),
        Rule(
            rule=(
                "type(self.maxCpuLoras) == string || type(self.maxLoras) == string ||"
                " int(self.maxCpuLoras) >= int(self.maxLoras)"
            ),
            message="maxCpuLoras must not be below maxLoras; raise it or set it to Auto",
        ),
    )

    @property
    def automatic(self) -> bool:
        """Whether something of it follows the adapters."""
        return self.max_loras == AUTO or self.max_rank == AUTO


Amount = Annotated[str, Field(max_length=16)]


class MemoryStatus(ApiModel):
    """Estimated memory of each accelerator of a replica, as Kubernetes quantities."""

    weights: Amount
    """The base model."""
    adapters: Amount
    """Room for adapters."""
    cache_per_request: Amount
    """Keys and values of one request of `engine.maxModelLength` tokens."""
    work: Amount
    """What batches, graphs and libraries need."""
    least: Amount
    """All of these: less serves not even one such request."""


class CapacityStatus(ApiModel):
    """What engines reserve for adapters from their next start on."""

    max_loras: int
    """Adapters in one batch."""
    max_rank: int
    """Highest rank that can be loaded."""
    max_cpu_loras: int
    """Adapters that stay in the engine's main memory."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """What Auto follows."""
    memory: MemoryStatus | None = None
    """What that and the model take; absent until a pod has read the model, and for models of other shapes."""
