"""How much an engine reserves for adapters: the numbers of a spec, or what its adapters need. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.capacity import MAX_SLOTS, RANKS, AdapterCapacity, AdapterHeadroom
from whetstone_api.modelserver import MAX_ADAPTERS


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one adapter asks for.

    Args:
        name: Its name.
        rank: Its rank; None while nobody has seen it.
    """

    name: str
    rank: int | None


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What an engine reserves.

    Args:
        loras: Adapters in one batch.
        rank: Highest rank that loads.
        cpu_loras: Adapters that stay in main memory.
        message: What the automatic ones follow; empty where nothing is automatic.
    """

    loras: int
    rank: int
    cpu_loras: int
    message: str = ""


def reserve(capacity: AdapterCapacity, demands: Sequence[Demand] = (), *, running: Slots | None = None) -> Slots:
    """Return what an engine reserves.

    Args:
        capacity: What the spec says.
        demands: The adapters that the server serves or will serve.
        running: What engines that run have; they are not restarted for less, and for more only where it is needed.
    """
    room = capacity.headroom or AdapterHeadroom()
    told: list[str] = []
    rank: int
    if isinstance(capacity.max_rank, int):
        rank = capacity.max_rank
    else:
        rank, why = _rank(demands, room, running)
        told.append(why)
    most = capacity.max_cpu_loras if isinstance(capacity.max_cpu_loras, int) else MAX_SLOTS
    if isinstance(capacity.max_loras, int):
        loras = capacity.max_loras
    else:
        loras, why = _loras(len(demands), room, running, most=min(most, MAX_SLOTS))
        told.append(why)
    cpu = capacity.max_cpu_loras if isinstance(capacity.max_cpu_loras, int) else max(MAX_ADAPTERS, loras)
    return Slots(loras=loras, rank=rank, cpu_loras=cpu, message="; ".join(told))


def _rank(demands: Sequence[Demand], room: AdapterHeadroom, running: Slots | None) -> tuple[int, str]:
    highest = max(demands, key=lambda demand: demand.rank or 0, default=None)
    needed = min((highest.rank or 0) if highest else 0, RANKS[-1])
    if running is not None and running.rank >= max(needed, room.rank):
        kept = f", kept at {running.rank}" if running.rank > _round_up(max(needed, room.rank)) else ""
        return running.rank, _follow(highest, needed, room) + kept
    return _round_up(max(needed, room.rank)), _follow(highest, needed, room)


def _follow(highest: Demand | None, needed: int, room: AdapterHeadroom) -> str:
    if highest is not None and needed > room.rank:
        return f"maxRank: adapter {highest.name} has rank {highest.rank}"
    return f"maxRank: the headroom is {room.rank}"


def _loras(adapters: int, room: AdapterHeadroom, running: Slots | None, *, most: int) -> tuple[int, str]:
    wanted = max(1, min(adapters + room.loras, most))
    why = f"maxLoras: adapters {adapters}, headroom {room.loras}"
    if running is not None and running.loras >= max(1, min(adapters, most)):
        kept = f", kept at {running.loras}" if running.loras != wanted else ""
        return running.loras, why + kept
    return wanted, why


def _round_up(rank: int) -> int:
    return next(bound for bound in RANKS if bound >= rank)


def lora_options(slots: Slots) -> list[str]:
    """Return the options of `vllm serve` for what is reserved."""
    return [
        "--enable-lora",
        f"{_LORAS}={slots.loras}",
        f"{_CPU_LORAS}={slots.cpu_loras}",
        f"{_RANK}={slots.rank}",
    ]


def read_slots(arguments: Sequence[str]) -> Slots | None:
    """Return what an engine with these arguments has reserved; None where they do not say it."""
    flags = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    try:
        return Slots(loras=int(flags[_LORAS]), rank=int(flags[_RANK]), cpu_loras=int(flags[_CPU_LORAS]))
    except (KeyError, ValueError):
        return None


_LORAS, _CPU_LORAS, _RANK = "--max-loras", "--max-cpu-loras", "--max-lora-rank"
