"""Training by several processes: one for each GPU, on one node or on several."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel
from whetstone_api.wire import WireModel

RENDEZVOUS_PORT = 29500
"""Where the processes of a training meet, on the pod of index 0."""
RENDEZVOUS_VARIABLE = "WHETSTONE_RENDEZVOUS"
"""Environment variable of a training pod: the DNS name of the pod of index 0; absent where there is only one pod."""
NODE_VARIABLE = "JOB_COMPLETION_INDEX"
"""Environment variable that Kubernetes gives to each pod of an Indexed Job: its index."""


class Strategy(StrEnum):
    """How the processes share the work."""

    AUTO = "Auto"
    DDP = "DDP"
    FSDP = "FSDP"
    ZERO2 = "ZeRO2"
    ZERO3 = "ZeRO3"

    @property
    def shares_base(self) -> bool:
        """Whether each process holds a share of the base model only, at least between its passes."""
        return self in (Strategy.FSDP, Strategy.ZERO2, Strategy.ZERO3)

    @property
    def gathers_twice(self) -> bool:
        """Whether it lets go of a layer after its forward pass, so that the backward pass gathers it again."""
        return self in (Strategy.FSDP, Strategy.ZERO3)


class CommunicationVariable(ApiModel):
    """A variable of the libraries by which the processes speak to each other."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^(NCCL|TORCH_NCCL|GLOO|UCX|FI)_[A-Z0-9_]+$")]
    """Name of the variable, as in `NCCL_SOCKET_IFNAME`."""
    value: Annotated[str, Field(max_length=4096)]
    """Its value, as it is."""


class DistributedSpec(ApiModel):
    """By how many processes to train, and how they share the work."""

    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods that train together, each on a node that has room for `resources`."""
    processes_per_node: Annotated[int, Field(ge=1, le=16)] | None = None
    """Processes in each pod; when absent, one for each GPU that `resources.limits` asks for, at least one."""
    strategy: Strategy = Strategy.AUTO
    """DDP: each process holds the whole base model. FSDP: it holds a share and gets the others' one layer at a time:
    less memory, more time. Auto: DDP where the base model fits each GPU with all else, otherwise FSDP. ZeRO3: FSDP by
    DeepSpeed's name. ZeRO2: what is gathered in the forward pass stays until the backward pass: less traffic than FSDP,
    and for a moment the memory of DDP."""
    env: Annotated[list[CommunicationVariable], Field(max_length=64)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Variables of NCCL, gloo, UCX and libfabric in every process: which network to take, what to log."""


class World(WireModel):
    """The processes of one training, as the operator has resolved them."""

    nodes: int = 1
    processes_per_node: int = 1
    strategy: Strategy = Strategy.AUTO

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.nodes * self.processes_per_node
