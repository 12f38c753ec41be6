"""Policy: when an alias moves, and to what. Pure.

A promoted alias serves the base until a run has shown an adapter to be better. It moves

1. away from a version that a later valid run finds Worse: to what it served before, else to the base;
2. to the version of the newest run that counts as evidence, when that version is effective on every ready replica
   and no valid run finds it Worse than what the alias serves now.

Evidence that vanishes moves nothing: what counts then is what the status records. An alias whose targets were taken
away for a promotion is decided anew, as in a cluster without its status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from whetstone_api.aliases import AliasStatus, AliasTarget, AliasTargetStatus, PromotionSpec
from whetstone_api.benchmark_result import Verdict
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.vocabulary import AliasMoveReason, ConditionType, Reason

from whetstone_operator.controllers.gates import all_hold
from whetstone_operator.runtime.clock import from_rfc3339


@dataclass(frozen=True, kw_only=True)
class Version:
    """An adapter version that the server holds.

    Args:
        adapter: Its name in the spec.
        served_name: Its immutable name.
        digest: Its content digest.
        effective: Whether it is effective on every ready replica, and there is one.
    """

    adapter: str
    served_name: str
    digest: str
    effective: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A finished, valid run of the alias's selector on this server.

    Args:
        run: Name of the BenchmarkRun.
        finished_at: When it ended.
        digest: What it measured; None for the base.
        counts: Whether it may move the alias: enough tasks, and those of the pinned suite.
        passed: Whether it may promote: gates passed, and Better than its baseline if it has one.
        verdict: Its verdict on what it measured, against its baseline; None without one.
        baseline_known: Whether what its baseline measured is still known.
        baseline_digest: What its baseline measured; None for the base or unknown.
    """

    run: str
    finished_at: datetime
    digest: str | None
    counts: bool
    passed: bool
    verdict: Verdict | None
    baseline_known: bool
    baseline_digest: str | None

    @property
    def worse(self) -> bool:
        """Whether it found what it measured Worse than its baseline."""
        return self.verdict is Verdict.WORSE


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of what an alias serves.

    Args:
        adapter: Adapter, or base's served name, that answers.
        served_name: Version that answers.
        digest: Its content digest; None for the base.
        run: The run that moves it.
        cause: Why.
        targets: All targets where there are several; the rest then tells of the heaviest.
    """

    adapter: str
    served_name: str
    digest: str | None
    run: str | None
    cause: AliasMoveReason
    targets: tuple[AliasTargetStatus, ...] = ()

    def describe(self) -> str:
        """Return what answers, for people."""
        return ", ".join(f"{one.served_name} (weight {one.weight})" for one in self.targets) or self.served_name


def gather_evidence(runs: Sequence[BenchmarkRun], *, server: str, promotion: PromotionSpec) -> list[Evidence]:
    """Return the runs that say something about a server, newest first.

    Args:
        runs: BenchmarkRuns of the namespace.
        server: Name of the ModelServer.
        promotion: What counts as evidence.
    """
    labels = promotion.benchmark_selector.match_labels
    by_name = {run.metadata.name: run for run in runs}
    found = []
    for run in runs:
        if run.spec.target.model_server_ref.name != server or not labels.items() <= run.metadata.labels.items():
            continue
        if run.spec.suite.assisted:
            # Its score is in part the expert's.
            continue
        status = run.status
        if not (run.status.is_true(ConditionType.COMPLETE) and run.status.is_true(ConditionType.VALID)):
            continue
        if status.results is None or status.target is None or status.finished_at is None:
            continue
        comparison = status.comparison
        baseline = by_name.get(comparison.baseline) if comparison else None
        measured = baseline.status.target if baseline else None
        suite = promotion.suite_digest
        found.append(
            Evidence(
                run=run.metadata.name,
                finished_at=from_rfc3339(status.finished_at),
                digest=status.target.digest,
                counts=status.results.tasks >= promotion.minimum_tasks and suite in (None, status.suite_digest),
                passed=_passed(run, promotion),
                verdict=comparison.verdict if comparison else None,
                baseline_known=measured is not None,
                baseline_digest=measured.digest if measured else None,
            )
        )
    return sorted(found, key=lambda item: (item.finished_at, item.run), reverse=True)


def _passed(run: BenchmarkRun, promotion: PromotionSpec) -> bool:
    results, comparison = run.status.results, run.status.comparison
    if results is None or (comparison is not None and comparison.verdict is not Verdict.BETTER):
        return False
    own = next((item for item in run.status.conditions or [] if item.type == ConditionType.GATE_PASSED), None)
    if own is None:
        return False
    if promotion.gates is None:
        return own.status == "True"
    ungated = own.status == "Unknown" and own.reason == Reason.NO_GATES
    return (own.status == "True" or ungated) and all_hold(promotion.gates, results=results, comparison=comparison)


def decide_promotion(
    *,
    current: AliasStatus | None,
    base: str,
    evidence: Sequence[Evidence],
    versions: Mapping[str, Version],
) -> Move | None:
    """Return the move that an alias with a promotion must make now, or None.

    Args:
        current: What it serves; None: nothing recorded yet.
        base: Served name of the base model.
        evidence: Runs that say something, newest first.
        versions: Versions that the server holds, by digest.
    """
    counting = [item for item in evidence if item.counts]
    if current is None or current.reason == AliasMoveReason.SPEC:
        serves = current.digest if current else None
        first = _promotion(serves, evidence=counting, versions=versions, after=None, anew=True)
        return first or _to_base(base, cause=AliasMoveReason.INITIAL)
    if current.digest is not None and current.digest not in versions:
        return _to_base(base, cause=AliasMoveReason.REMOVED)
    after = _decided_at(current, evidence)
    rollback = _rollback(current, base=base, evidence=counting, versions=versions, after=after)
    return rollback or _promotion(current.digest, evidence=counting, versions=versions, after=after)


def decide_fixed(
    *, current: AliasStatus | None, targets: Sequence[AliasTarget], base: str, versions: Sequence[Version]
) -> Move | None:
    """Return the move that an alias with fixed targets must make now, or None.

    It follows the adapters' current versions once all that get requests are effective on every ready replica; until
    then it keeps what it serves, or is unknown to clients.

    Args:
        current: What it serves; None: nothing recorded yet.
        targets: What it should serve.
        base: Served name of the base model.
        versions: Versions that the server holds, the current one of an adapter first.
    """
    found = [_fixed_target(target, base=base, versions=versions) for target in targets]
    shares = [share for share in found if share is not None]
    if any(share is None and target.weight > 0 for share, target in zip(found, targets, strict=True)):
        return None
    first = max(shares, key=lambda share: share.weight)
    move = Move(
        adapter=first.adapter,
        served_name=first.served_name,
        digest=first.digest,
        run=None,
        cause=AliasMoveReason.SPEC,
        targets=tuple(shares) if len(shares) > 1 else (),
    )
    same = current is not None and (current.served_name, tuple(current.targets or ())) == (
        move.served_name,
        move.targets,
    )
    return None if same else move


def _fixed_target(target: AliasTarget, *, base: str, versions: Sequence[Version]) -> AliasTargetStatus | None:
    if target.adapter == base:
        return AliasTargetStatus(adapter=base, served_name=base, weight=target.weight)
    for item in versions:
        if item.adapter == target.adapter:
            if not item.effective and target.weight > 0:
                continue
            return AliasTargetStatus(
                adapter=item.adapter, served_name=item.served_name, digest=item.digest, weight=target.weight
            )
    return None


def _to_base(base: str, *, cause: AliasMoveReason, run: str | None = None) -> Move:
    return Move(adapter=base, served_name=base, digest=None, run=run, cause=cause)


def _to_version(version: Version, *, cause: AliasMoveReason, run: str | None = None) -> Move:
    return Move(adapter=version.adapter, served_name=version.served_name, digest=version.digest, run=run, cause=cause)


def _decided_at(current: AliasStatus, evidence: Sequence[Evidence]) -> datetime | None:
    """Return until when evidence is settled: the end of the run that moved the alias, else the move itself."""
    for item in evidence:
        if item.run == current.benchmark_run:
            return item.finished_at
    if current.benchmark_run and current.since:
        return from_rfc3339(current.since)
    return None


def _rollback(
    current: AliasStatus,
    *,
    base: str,
    evidence: Sequence[Evidence],
    versions: Mapping[str, Version],
    after: datetime | None,
) -> Move | None:
    if current.digest is None:
        return None
    newest = next((item for item in evidence if item.digest == current.digest), None)
    if newest is None or not newest.worse or (after is not None and newest.finished_at <= after):
        return None
    before = next((item for item in versions.values() if item.served_name == current.previous), None)
    if before is not None and before.effective and not _found_worse(before.digest, evidence):
        return _to_version(before, run=newest.run, cause=AliasMoveReason.ROLLBACK)
    return _to_base(base, run=newest.run, cause=AliasMoveReason.ROLLBACK)


def _promotion(
    serves: str | None,
    *,
    evidence: Sequence[Evidence],
    versions: Mapping[str, Version],
    after: datetime | None,
    anew: bool = False,
) -> Move | None:
    """Return the move that the newest evidence asks for.

    Args:
        serves: Digest of what the alias serves; None for the base.
        evidence: Runs that count, newest first.
        versions: Versions that the server holds, by digest.
        after: Until when evidence is settled.
        anew: Whether the version that the alias serves counts as a move, too.
    """
    for item in evidence:
        if after is not None and item.finished_at <= after:
            return None
        version = versions.get(item.digest or "")
        if not item.passed or version is None or not version.effective:
            continue
        if version.digest == serves and not anew:
            continue
        if _found_worse(version.digest, evidence) or _worse_than(version.digest, serves, evidence):
            continue
        return _to_version(version, run=item.run, cause=AliasMoveReason.PROMOTION)
    return None


def _found_worse(digest: str, evidence: Sequence[Evidence]) -> bool:
    """Return whether the newest run of a version found it Worse."""
    newest = next((item for item in evidence if item.digest == digest), None)
    return newest is not None and newest.worse


def _worse_than(digest: str, other: str | None, evidence: Sequence[Evidence]) -> bool:
    """Return whether the newest comparison of a version with another one, either way round, found it Worse.

    A baseline that is gone may have been any version: evidence that vanishes must not let a worse one pass.
    """
    for item in evidence:
        if item.verdict is None:
            continue
        if item.digest == digest and (item.baseline_digest == other if item.baseline_known else item.worse):
            return item.worse
        if item.digest == other and item.baseline_known and item.baseline_digest == digest:
            return item.verdict is Verdict.BETTER
    return False
