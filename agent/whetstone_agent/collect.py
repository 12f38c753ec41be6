"""Scored trials as training data, in the forms that LoRATrainingJobs read.

Each row names its task as the task calls itself (field `task`), so that a benchmark of an adapter trained on it finds
the task Contaminated. Void trials are never taken: what spoiled them is no doing of the model.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone_api.benchmark_collect import (
    Collected,
    CollectedRows,
    CollectKind,
    CollectSpec,
    PreferenceCollect,
    RowPer,
    SftCollect,
    collect_path,
)
from whetstone_api.run_artifact import RunArtifact, TaskScore, TrialScore
from whetstone_artifacts.data.pairs import fork
from whetstone_artifacts.episodes import Episode, Message, read_episodes
from whetstone_artifacts.replacing import replacing

Row = dict[str, Any]


def collect(output: Path, artifact: RunArtifact, *, spec: CollectSpec, identities: Mapping[str, str]) -> Collected:
    """Write the rows that are asked for beside the results, or find them there.

    Args:
        output: Folder of the results.
        artifact: The finished run.
        spec: What is asked for.
        identities: What each task calls itself, by its name.
    """
    told: dict[CollectKind, CollectedRows] = {}
    for kind, settings in ((CollectKind.SFT, spec.sft), (CollectKind.PREFERENCE, spec.preference)):
        if settings is None:
            continue
        place = collect_path(kind, settings)
        if not (output / place).is_file():
            rows = [
                {**row, "task": identities.get(task.task, task.digest), "taskName": task.task}
                for task in artifact.tasks
                for row in _rows(output, task, settings)
            ]
            write_rows(output / place, rows)
        told[kind] = told_rows(output / place, f"{artifact.results.uri}/{place}")
    return Collected(sft=told.get(CollectKind.SFT), preference=told.get(CollectKind.PREFERENCE))


def _rows(output: Path, task: TaskScore, settings: SftCollect | PreferenceCollect) -> Iterator[Row]:
    best_first = sorted((one for one in task.trials if one.reward is not None), key=lambda one: -(one.reward or 0.0))
    if isinstance(settings, SftCollect):
        yield from _conversations(output, best_first, settings)
    else:
        yield from _pairs([one for trial in best_first for one in read_episodes(output, trial)[:1]], settings)


def _conversations(output: Path, trials: Sequence[TrialScore], settings: SftCollect) -> Iterator[Row]:
    least = float(settings.minimum_reward)
    taken = [trial for trial in trials if trial.reward is not None and trial.reward >= least]
    for trial in taken[: settings.trials_per_task]:
        for episode in read_episodes(output, trial):
            if episode.reward >= least:
                for messages in parts(episode.messages, settings.per):
                    yield _row(episode, {"messages": messages})


def parts(messages: list[Message], per: RowPer) -> Iterator[list[Message]]:
    """Yield what becomes a row of a conversation."""
    if per is RowPer.EPISODE:
        yield messages
        return
    for number, message in enumerate(messages, start=1):
        if message["role"] == "assistant":
            yield messages[:number]


def _pairs(episodes: Sequence[Episode], settings: PreferenceCollect) -> Iterator[Row]:
    """Yield pairs of the best and the worst that are left, until their difference is too small."""
    left, found = sorted(episodes, key=lambda one: -one.reward), 0
    while len(left) > 1 and found < settings.pairs_per_task:
        better, worse = left[0], left[-1]
        if better.reward - worse.reward < float(settings.minimum_difference):
            return
        start = fork(better.messages, worse.messages)
        if start is None:
            # One of the two only stops earlier: there is no answer to prefer. Another one may differ.
            left = left[:-1]
            continue
        sides = {"chosen": better.messages[start:], "rejected": worse.messages[start:]}
        yield _row(better, {"prompt": better.messages[:start], **sides, "rejectedTrial": worse.trial})
        left, found = left[1:-1], found + 1


def _row(episode: Episode, fields: Row) -> Row:
    tools = {"tools": episode.tools} if episode.tools else {}
    return {**fields, **tools, "reward": episode.reward, "trial": episode.trial}


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows by a temporary file and a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("w") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def told_rows(path: Path, uri: str) -> CollectedRows:
    """Return what is told of a file of rows, which lies at `uri` for others."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        rows = sum(1 for _ in stream)
    return CollectedRows(uri=uri, digest=f"sha256:{digest}", rows=rows)
