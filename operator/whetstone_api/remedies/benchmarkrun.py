"""Reasons of a BenchmarkRun."""

from collections.abc import Mapping
from typing import Final

from whetstone_api.remedies.remedy import (
    DESCRIBE,
    FAILS,
    FIGURES,
    GATE,
    LABELS,
    OBJECTS,
    RUN_LOG,
    RUN_PODS,
    SUMMARY,
    VALID,
    WAITS,
    Remedy,
)
from whetstone_api.vocabulary import ConditionType, Reason

_JUDGED: Final = (ConditionType.JUDGED,)

REMEDIES: Final[Mapping[Reason, Remedy]] = {
    Reason.RUNNING: Remedy(
        on=WAITS,
        look=(SUMMARY, RUN_PODS, RUN_LOG),
        do="Wait: `status.progress` has the trials and the time left.",
    ),
    Reason.IMAGE_NOT_BUILT: Remedy(
        on=(),
        look=("whetstone bundle --help",),
        do="Told by `whetstone bundle` on your machine: install one of the builders that it names, log in to the"
        " registry, or mend the Dockerfile that its message quotes ([task-sets.md](task-sets.md)).",
    ),
    Reason.TASKS_INVALID: Remedy(
        on=FAILS,
        look=(DESCRIBE, RUN_LOG),
        do="The message names each task and what it lacks. Correct it, exclude it (`tasks.exclude`), or let the run"
        " leave such tasks out (`refused: Exclude`).",
    ),
    Reason.MODEL_NOT_SERVED: Remedy(
        on=FAILS,
        look=("kubectl get modelservers -n NAMESPACE -o yaml", RUN_LOG),
        do="Correct `spec.target`, or add the adapter or alias to the ModelServer; of an endpoint outside, correct"
        " model name and key.",
    ),
    Reason.ADAPTER_NOT_EFFECTIVE: Remedy(
        on=(*WAITS, *FAILS),
        look=("kubectl get modelservers -n NAMESPACE -o yaml", OBJECTS),
        do="Wait until the adapter is loaded and effective on every replica: `status.adapters` of the ModelServer says"
        " what holds it back. One with NoEffect or Divergent ends the run: publish another version.",
    ),
    Reason.TARGET_CHANGED: Remedy(
        on=(*FAILS, *VALID, *GATE),
        look=(DESCRIBE, "kubectl get modelservers -n NAMESPACE -o yaml"),
        do="Somebody changed the server while it was measured; the message says what. Leave it alone while a run is at"
        " work, and measure again under another `output.uri`.",
    ),
    Reason.JUDGED: Remedy(on=_JUDGED, look=(SUMMARY,), do="Nothing: all trials have an opinion."),
    Reason.JUDGE_INCOMPLETE: Remedy(
        on=_JUDGED,
        look=(SUMMARY, RUN_LOG),
        do="Scores and gates stand. To ask about the missing trials again, raise the judge's budget or mend its"
        " endpoint, and create the run again with the same output.",
    ),
    Reason.ENGINES_UNCHECKED: Remedy(
        on=(*VALID, *GATE),
        look=(DESCRIBE,),
        do="Measure again under another `output.uri` for a run that counts as evidence.",
    ),
    Reason.BUDGET_EXCEEDED: Remedy(
        on=FAILS,
        look=(SUMMARY, RUN_LOG),
        do="Create the run again with a larger `agent.budget.runTokens`, or fewer tasks or attempts; finished trials"
        " are taken over.",
    ),
    Reason.SERVER_HELD: Remedy(
        on=WAITS,
        look=(OBJECTS,),
        do="Wait for the run that the message names, or suspend it. To run both at once, set `target.shared` in both:"
        " their trials then slow each other down.",
    ),
    Reason.TOO_MANY_ERRORS: Remedy(
        on=(*VALID, *GATE),
        look=(SUMMARY, RUN_PODS, RUN_LOG),
        do="Fetch the results (`whetstone results NAME -n NAMESPACE`): `report.html` groups the errors of void trials."
        " Usual are images that cannot be pulled, quotas, and verifiers without network. Then create the run again"
        " with another output.",
    ),
    Reason.WITHIN_LIMITS: Remedy(on=VALID, look=(SUMMARY,), do="Nothing: the figures count."),
    Reason.GATES_PASSED: Remedy(on=GATE, look=(FIGURES,), do="Nothing: the run may move an alias."),
    Reason.GATE_FAILED: Remedy(
        on=GATE,
        look=(FIGURES, SUMMARY),
        do="The model is not good enough for that gate, or the run too small to show it: compare"
        " `comparison.minimumDetectable` with what you hope for, and `whetstone power` for the number of tasks"
        " ([reading-scores.md](reading-scores.md)). No alias moves.",
    ),
    Reason.NO_GATES: Remedy(
        on=GATE, look=(FIGURES,), do="Nothing; name `spec.gates` in a new run if something shall depend on it."
    ),
    Reason.NOT_COMPARABLE: Remedy(
        on=GATE,
        look=(FIGURES,),
        do="The message names what differs besides the model (tasks, agent, sampling, scorer). Measure baseline and"
        " candidate with the same suite and settings.",
    ),
    Reason.EXPERT_ASSISTED: Remedy(
        on=GATE, look=(DESCRIBE,), do="Leave `suite.toolUse.expert` out in a new run for a score of the model."
    ),
    Reason.CONTAMINATED: Remedy(
        on=GATE,
        look=(DESCRIBE, FIGURES),
        do="Leave the tasks that the message names out of a new run (`tasks.exclude`), or train without them.",
    ),
    Reason.TRIALS_FORBIDDEN: Remedy(
        on=(*WAITS, *FAILS),
        look=("kubectl get serviceaccounts,rolebindings -n NAMESPACE", LABELS),
        do="Add the namespace to `servedNamespaces` of the chart, which creates the account `whetstone-runner`. A"
        " namespace that enforces pod security `restricted` refuses trial pods: run benchmarks in one with `baseline`.",
    ),
    Reason.NETWORK_NOT_ENFORCED: Remedy(
        on=FAILS,
        look=("kubectl get networkpolicies -n NAMESPACE", RUN_LOG),
        do="Use a network plugin that enforces NetworkPolicies, exclude the tasks that ask for a limited network, or"
        " accept that it is not limited (`environment.networkLimits: BestEffort`).",
    ),
}
