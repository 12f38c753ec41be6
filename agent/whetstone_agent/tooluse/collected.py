"""Trials of a `toolUse` suite as training data, in the forms that LoRATrainingJobs read."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from whetstone_api.benchmark_collect import (
    Collected,
    CollectedRows,
    CollectKind,
    CollectSpec,
    PairsFrom,
    PreferenceCollect,
    SftCollect,
    collect_path,
)

from whetstone_agent.collect import Row, parts, told_rows, write_rows
from whetstone_agent.tooluse.training_rows import sft_rows, step_preferences, trajectory_preferences
from whetstone_agent.tooluse.trials import TrialRecord


def collect_episodes(output: Path, records: Sequence[TrialRecord], *, spec: CollectSpec, uri: str) -> Collected:
    """Write the rows that are asked for beside the results, or find them there.

    Args:
        output: Folder of the results.
        records: The finished trials, by task and attempt.
        spec: What is asked for.
        uri: Where the folder lies for others.
    """
    told: dict[CollectKind, CollectedRows] = {}
    for kind, settings in ((CollectKind.SFT, spec.sft), (CollectKind.PREFERENCE, spec.preference)):
        if settings is None:
            continue
        place = collect_path(kind, settings)
        if not (output / place).is_file():
            write_rows(output / place, [row for some in _by_task(records).values() for row in _rows(some, settings)])
        told[kind] = told_rows(output / place, f"{uri}/{place}")
    return Collected(sft=told.get(CollectKind.SFT), preference=told.get(CollectKind.PREFERENCE))


def _by_task(records: Sequence[TrialRecord]) -> Mapping[str, list[TrialRecord]]:
    found: dict[str, list[TrialRecord]] = {}
    for one in records:
        if not one.episode.void:
            found.setdefault(one.episode.sample_id, []).append(one)
    return found


def _rows(records: Sequence[TrialRecord], settings: SftCollect | PreferenceCollect) -> Iterator[Row]:
    if isinstance(settings, SftCollect):
        yield from _conversations(records, settings)
    else:
        yield from list(_pairs(records, settings))[: settings.pairs_per_task]


def _conversations(records: Sequence[TrialRecord], settings: SftCollect) -> Iterator[Row]:
    least = float(settings.minimum_reward)
    best_first = sorted(records, key=lambda one: not one.episode.success)
    taken = [one for one in best_first if float(one.episode.success) >= least][: settings.trials_per_task]
    for one in taken:
        for row in sft_rows([one.episode], least=least):
            for messages in parts(row["messages"], settings.per):
                yield {**row, "messages": messages, "trial": one.trial}


def _pairs(records: Sequence[TrialRecord], settings: PreferenceCollect) -> Iterator[Row]:
    if settings.pairs is PairsFrom.ALTERNATES:
        for one in records:
            yield from ({**row, "trial": one.trial} for row in step_preferences([one.episode]))
    elif float(settings.minimum_difference) > 1:
        return
    elif settings.pairs is PairsFrom.BRANCHES:
        for one in records:
            for branch in one.branches:
                yield from ({**row, "trial": one.trial} for row in trajectory_preferences([[one.episode], [branch]]))
    else:
        solved = [one for one in records if one.episode.success]
        failed = [one for one in records if not one.episode.success]
        for better, worse in zip(solved, failed, strict=False):
            for row in trajectory_preferences([[better.episode], [worse.episode]]):
                yield {**row, "trial": better.trial, "rejectedTrial": worse.trial}
