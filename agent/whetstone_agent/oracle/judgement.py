"""Which tasks are run after their own solutions were. Pure."""

from collections.abc import Mapping, Sequence

from whetstone_api.benchmark_oracle import OracleVerdict, WithoutSolution
from whetstone_api.benchmark_suite import RefusedTask, WhenRefused
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason, TaskRefusal

from whetstone_agent.admission import told_faults
from whetstone_agent.failure import RunFailure
from whetstone_agent.oracle.findings import Findings
from whetstone_agent.tasks import AdmittedTask

FIELD = "spec.suite.harbor.oracle"


def judge_tasks(
    config: BenchmarkConfig,
    tasks: Sequence[AdmittedTask],
    *,
    verdicts: Mapping[str, OracleVerdict],
    voids: Mapping[str, str],
    minimum: float,
    reused: int,
) -> Findings:
    """Sort tasks by what their own solutions scored.

    Args:
        config: What to do about refused tasks, and about those without a solution.
        tasks: The tasks.
        verdicts: By the name of the task.
        voids: Error of the last try, for each task whose solution could not be tried.
        minimum: Lowest reward by which a solution solves its task.
        reused: How many of the verdicts an earlier run left.

    Raises:
        RunFailure: `TASKS_INVALID`, naming the tasks; to be tried again where only the infrastructure is to blame.
    """
    refused: list[RefusedTask] = []
    unvouched: list[str] = []
    for task in tasks:
        verdict = verdicts.get(task.name)
        if task.name in voids:
            refused.append(_void(task, voids[task.name]))
        elif verdict is None:
            if config.suite.oracle is not None and config.suite.oracle.without_solution is WithoutSolution.RUN:
                unvouched.append(task.name)
            else:
                refused.append(_none(task))
        elif verdict.reward < minimum:
            refused.append(_failed(task, verdict, minimum))
    if refused and config.suite.refused is WhenRefused.FAIL:
        only_void = all(one.reason is TaskRefusal.ORACLE_VOID for one in refused)
        raise RunFailure(
            Reason.TASKS_INVALID,
            told_faults(refused, config.suite),
            outcome=Outcome.RETRY if only_void else Outcome.FAILED,
        )
    solved = len(tasks) - len(refused) - len(unvouched)
    return Findings(refused=refused, solved=solved, reused=reused, without_solution=unvouched)


def _failed(task: AdmittedTask, verdict: OracleVerdict, minimum: float) -> RefusedTask:
    why = f" ({verdict.error})" if verdict.error else ""
    said = f": {verdict.said}" if verdict.said else ""
    message = (
        f"its own solution got reward {verdict.reward:g} here, below {FIELD}.minimumReward ({minimum:g}){why}{said};"
        f" mend the task or its image, or exclude it (trial: {verdict.trial})"
    )
    return RefusedTask(task=task.name, reason=TaskRefusal.ORACLE_FAILED, message=message)


def _void(task: AdmittedTask, error: str) -> RefusedTask:
    message = (
        f"its own solution could not be tried: the last try ended with {error}; look at the trial's pod and image, or"
        " exclude it"
    )
    return RefusedTask(task=task.name, reason=TaskRefusal.ORACLE_VOID, message=message)


def _none(task: AdmittedTask) -> RefusedTask:
    message = f"has no solution/solve.sh, and {FIELD}.withoutSolution is Exclude; add one, or set that to Run"
    return RefusedTask(task=task.name, reason=TaskRefusal.NO_SOLUTION, message=message)
