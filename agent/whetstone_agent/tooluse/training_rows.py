"""Finished episodes as training data, in the forms that LoRATrainingJobs read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whetstone_agent.tooluse.episode import Actor, EpisodeRecord

type Row = dict[str, Any]


def sft_rows(episodes: Sequence[EpisodeRecord], *, least: float = 1.0) -> Iterator[Row]:
    """Yield the conversations of successful episodes; steps that should not be imitated are marked `suboptimal`.

    Args:
        episodes: Void ones are left out.
        least: Lowest reward that is taken; at 0 failures too.
    """
    for one in episodes:
        if not one.void and float(one.success) >= least:
            yield {"messages": _marked(one), **_shared(one)}


def step_preferences(episodes: Sequence[EpisodeRecord]) -> Iterator[Row]:
    """Yield a pair for every step at which agent and expert differ and one of both is known to be better.

    The expert's action is the better one where the agent's is known to be no step towards the answer. Where both are,
    or where only the API could tell, there is no pair.
    """
    for one in episodes:
        if one.void:
            continue
        places = [number for number, message in enumerate(one.messages) if message["role"] == "assistant"]
        for step, place in zip(one.steps, places, strict=False):
            other = step.alternate
            if other is None:
                continue
            agents = other.category if other.actor is Actor.AGENT else step.category
            if agents.optimal or agents.excused:
                continue
            done, would = one.messages[place], other.message
            chosen, rejected = (done, would) if step.actor is Actor.EXPERT else (would, done)
            yield {"prompt": one.messages[:place], "chosen": [chosen], "rejected": [rejected], **_shared(one)}


def trajectory_preferences(runs: Sequence[Sequence[EpisodeRecord]]) -> Iterator[Row]:
    """Yield a pair for every instance on which one run succeeded and another did not, from where the two part.

    Args:
        runs: Episodes of runs by different agents; of one instance, the first that succeeds and the first that fails
            are taken.
    """
    found: dict[str, list[EpisodeRecord]] = {}
    for one in (episode for run in runs for episode in run):
        if not one.void:
            found.setdefault(one.sample_id, []).append(one)
    for episodes in found.values():
        better = next((one for one in episodes if one.success), None)
        worse = next((one for one in episodes if not one.success), None)
        if better is None or worse is None:
            continue
        chosen, rejected = _marked(better), _marked(worse)
        start = _fork(better.messages, worse.messages)
        if start is not None:
            sides = {"chosen": _to_last_turn(chosen[start:]), "rejected": _to_last_turn(rejected[start:])}
            yield {"prompt": better.messages[:start], **sides, **_shared(better)}


def _marked(one: EpisodeRecord) -> list[dict[str, Any]]:
    """Return the messages, those of the assistant that should not be imitated marked so."""
    left = iter(one.steps)
    return _to_last_turn(
        [
            message
            if message["role"] != "assistant" or next(left).category.optimal
            else {**message, "suboptimal": True}
            for message in one.messages
        ]
    )


def _to_last_turn(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    while messages and messages[-1]["role"] != "assistant":
        messages = messages[:-1]
    return messages


def _fork(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the place at which two conversations part, if that is a turn of the assistant in both."""
    part = next((place for place, (here, there) in enumerate(zip(one, other, strict=False)) if here != there), None)
    if not part or not one[part]["role"] == other[part]["role"] == "assistant":
        return None
    return part


def _shared(one: EpisodeRecord) -> Row:
    shown = {name: value for name, value in (("tools", one.tools), ("tags", one.tags)) if value}
    return {**shown, "reward": float(one.success), "task": one.task, "taskName": one.sample_id}
