"""The processes of a training as one of them sees it: which it is, and what they agree on.

A process that the launcher has started finds its place in the environment (`RANK`, `WORLD_SIZE` and what else torchrun
sets). It trains only in a world of the size that the spec asks for, on the recipe that all others have.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from whetstone_api.reports import ProgressReport
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.reporting import Reporter

from whetstone_trainer.errors import UserError

if TYPE_CHECKING:
    from whetstone_api.training_distributed import World

WORKER_VARIABLE = "WHETSTONE_REPORTS"
"""Set by the launcher in its processes: the folder into which each writes how it ended."""
PATIENCE = timedelta(hours=2)
"""How long a process waits for another one that still lives: rank 0 may have to prepare the data, or to publish."""
STEP_PATIENCE = timedelta(minutes=10)
"""How long it waits within a step. On GPUs this is what ends a process whose peer is gone without a word."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which process this is.

    Args:
        rank: Its number among all, from 0.
        size: Number of all.
        local_rank: Its number in its pod, from 0.
        local_size: Number of those in its pod.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reports, saves and publishes for all."""
        return self.rank == 0


def is_worker() -> bool:
    """Return whether the launcher has started this process."""
    return WORKER_VARIABLE in os.environ


def find_place(world: "World", environment: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process in the world that the spec asks for.

    Args:
        world: What the spec asks for.
        environment: Variables of this process.

    Raises:
        UserError: `WORLD_MISMATCH` when the launcher made another world.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    values = [int(environment[name]) for name in names if name in environment]
    place = Place(rank=values[0], size=values[1], local_rank=values[2], local_size=values[3]) if values else Place()
    if (place.size, place.local_size) != (world.ranks, world.processes_per_node):
        raise UserError(
            Reason.WORLD_MISMATCH,
            f"spec.distributed asks for {world.ranks} processes, {world.processes_per_node} in each pod; this is one of"
            f" {place.size}, {place.local_size} in its pod: use operator and trainer image of one release",
        )
    return place


class Ranks:
    """What the processes of a training agree on. With one process, all of it is at once and without torch.

    Args:
        place: Which process this is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._patient: Any = None

    def join(self, recipe_digest: str) -> None:
        """Meet the others.

        Args:
            recipe_digest: What this process has read and is about to train.

        Raises:
            UserError: `WORLD_MISMATCH` when the pod has too few GPUs, or another process has read something else.
        """
        if self.place.size == 1:
            return
        import torch
        import torch.distributed as dist

        on_gpu = torch.cuda.is_available()
        if on_gpu:
            if torch.cuda.device_count() < self.place.local_size:
                raise UserError(
                    Reason.WORLD_MISMATCH,
                    f"spec.distributed asks for {self.place.local_size} processes in each pod, and this one has"
                    f" {torch.cuda.device_count()} GPUs; ask for as many in spec.resources.limits",
                )
            torch.cuda.set_device(self.place.local_rank)
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=STEP_PATIENCE)
        self._patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        digests: list[str] = [""] * self.place.size
        dist.all_gather_object(digests, recipe_digest, group=self._patient)
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                raise UserError(
                    Reason.WORLD_MISMATCH,
                    f"rank {rank} of {self.place.size} reads other data or another base model than rank 0 (recipe"
                    f" {digest[:19]}, not {digests[0][:19]}); the volumes of all pods must hold the same files",
                )

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process. All of them must ask at the same time."""
        if self.place.size == 1:
            return flag
        import torch
        import torch.distributed as dist

        found = torch.tensor([int(flag)])
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._patient)
        return bool(found.item())

    def least(self, amount: int | None) -> int | None:
        """Return the smallest amount of any process; None where one has none. All of them must ask at the same time."""
        amounts = self.gathered(amount)
        known = [one for one in amounts if one is not None]
        return min(known) if len(known) == len(amounts) else None

    def gathered[T](self, value: T) -> list[T]:
        """Return what each process passes here, by rank. All of them must ask at the same time."""
        if self.place.size == 1:
            return [value]
        import torch.distributed as dist

        values = [value] * self.place.size
        dist.all_gather_object(values, value, group=self._patient)
        return values

    def told[T](self, value: T) -> T:
        """Return what rank 0 passes here; the others' values are not looked at."""
        if self.place.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._patient)
        return box[0]

    def shares_base(self, world: "World") -> bool:
        """Return whether each process holds a share of the base model only: then all take part in every use of it."""
        return self.place.size > 1 and world.strategy.shares_base

    def wait(self) -> None:
        """Return once all processes have come here."""
        self.any(False)

    def leave(self) -> None:
        """Part from the others, so that none takes the end of this process for its death."""
        if self.place.size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()


class SilentReporter(Reporter):
    """The reporter of all processes but rank 0: it tells nobody."""

    def __init__(self) -> None:
        """Start nothing."""

    def send(self, report: ProgressReport, *, at_once: bool = False) -> None:
        """Drop the report."""

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Return at once."""
