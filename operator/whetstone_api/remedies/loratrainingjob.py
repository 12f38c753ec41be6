"""Reasons of a LoRATrainingJob; those of queues are a BenchmarkRun's too."""

from collections.abc import Mapping
from typing import Final

from whetstone_api.remedies.remedy import (
    CLAIMS,
    DATASET,
    DESCRIBE,
    ESTIMATE,
    FAILS,
    JOBS,
    QUOTA,
    TRAINING_LOG,
    TRAINING_PODS,
    WAITS,
    WORKLOADS,
    Remedy,
)
from whetstone_api.vocabulary import Reason

_QUEUE: Final = (*WAITS, *QUOTA)

REMEDIES: Final[Mapping[Reason, Remedy]] = {
    Reason.QUEUED: Remedy(
        on=_QUEUE,
        look=(WORKLOADS, "kubectl get clusterqueues"),
        do="Wait for quota: the message has Kueue's own words. If it says that there is no Workload, Kueue is not"
        " installed, or does not manage this namespace, or `queueName` names no LocalQueue.",
    ),
    Reason.ADMITTED: Remedy(on=QUOTA, look=(WORKLOADS,), do="Nothing: the Job may run."),
    Reason.PREEMPTED: Remedy(
        on=_QUEUE,
        look=(WORKLOADS,),
        do="Wait: once admitted again, it goes on from its checkpoint or its finished trials. A higher priority class"
        " (label `kueue.x-k8s.io/priority-class`) is stopped less often.",
    ),
    Reason.DEACTIVATED: Remedy(
        on=_QUEUE,
        look=(WORKLOADS,),
        do="Ask who stopped it, or which limit of the queue did; then set `spec.active` of the Workload that the"
        " message names to true.",
    ),
    Reason.JOB_SUSPENDED: Remedy(
        on=WAITS,
        look=(JOBS,),
        do="Whoever suspended the Job has to let it go (`spec.suspend` of the Job). To stop and start it yourself, use"
        " `spec.suspend` of our object.",
    ),
    Reason.PREPARING: Remedy(
        on=WAITS, look=(TRAINING_PODS, TRAINING_LOG), do="Wait: data is fetched, rendered and counted, without a GPU."
    ),
    Reason.TRAINING: Remedy(
        on=WAITS,
        look=("kubectl get loratrainingjob NAME -n NAMESPACE", TRAINING_LOG),
        do="Wait: `status.progress` has step, loss and the time left.",
    ),
    Reason.TRAINING_STALLED: Remedy(
        on=(*WAITS, *FAILS),
        look=(TRAINING_LOG, TRAINING_PODS),
        do="The first time nothing: it goes on from its last checkpoint. The second time, read the stacks of all"
        " threads in the log: usual are a GPU that hangs, a volume that does not answer, and pods that cannot reach"
        " each other. Where steps just take that long, raise `spec.stall.minutes`; then ask for a"
        " [retry](#ask-for-a-retry).",
    ),
    Reason.OUT_OF_MEMORY: Remedy(
        on=WAITS,
        look=(ESTIMATE, TRAINING_PODS),
        do="Nothing: the next pod goes on from the newest checkpoint, on a CPU with a smaller plan, which `status.plan`"
        " has. For the larger, faster one raise `spec.resources.limits.memory`; on a GPU do so if it happens again,"
        " since no plan changes what main memory is for there ([plan](loratrainingjob.md#memory-on-a-cpu)).",
    ),
    Reason.MERGING: Remedy(on=WAITS, look=(TRAINING_LOG,), do="Wait: the adapter itself is published already."),
    Reason.WORLD_MISMATCH: Remedy(
        on=FAILS,
        look=(TRAINING_PODS, TRAINING_LOG),
        do="Ask for as many GPUs in `spec.resources.limits` as `spec.distributed.processesPerNode` says, mount volumes"
        " that hold the same files on all nodes (ReadWriteMany), and use operator and trainer images of one release.",
    ),
    Reason.PUSHING: Remedy(on=WAITS, look=(TRAINING_LOG,), do="Wait: `status.pushes` has what lies where already."),
    Reason.DATASET_NOT_FOUND: Remedy(
        on=FAILS,
        look=(DESCRIBE, CLAIMS),
        do="Put the file at the place that the message names, or correct the URI in a new object; where the object"
        " itself is right, ask for a [retry](#ask-for-a-retry).",
    ),
    Reason.BACKEND_UNAVAILABLE: Remedy(
        on=FAILS,
        look=(DESCRIBE, TRAINING_PODS),
        do="Ask for a GPU in `spec.resources.limits`, or use the backend `TRL`; for Unsloth, give the chart"
        " `images.unsloth`, or name an image in `spec.image` that is built with `images/trainer-unsloth`.",
    ),
    Reason.DATASET_EMPTY: Remedy(
        on=FAILS,
        look=(DATASET,),
        do="Give the file rows, or loosen what leaves them out: `filter`, `weight` below 1, `spec.collect` of the run"
        " that collected them.",
    ),
    Reason.DATASET_INVALID: Remedy(
        on=FAILS,
        look=(DESCRIBE,),
        do="Correct the row that the message names and ask for a [retry](#ask-for-a-retry)."
        " `whetstone data validate FILE` finds all such rows on your machine.",
    ),
    Reason.DATASET_TOO_LONG: Remedy(
        on=FAILS,
        look=(DATASET,),
        do="Raise `hyperparameters.maxLength` as far as the message says, or say in `preparation` that long rows are"
        " dropped or truncated. `status.dataset.lengths` has what rows measure.",
    ),
    Reason.DATASET_TOO_SMALL: Remedy(
        on=FAILS,
        look=(DATASET,),
        do="The message says where the rows went: loosen that filter, give more rows, hold fewer out, or lower"
        " `preparation.minimumRows`.",
    ),
    Reason.DEVICE_TOO_SMALL: Remedy(
        on=FAILS,
        look=(ESTIMATE, TRAINING_LOG),
        do="Shorten the longest rows (`hyperparameters.maxLength`), leave `plan.microBatchSize` and"
        " `plan.gradientCheckpointing` out, lower `lora.rank`, quantize the base, or take a larger GPU; on a CPU raise"
        " `spec.resources.limits.memory` and ask for a [retry](#ask-for-a-retry);"
        " `whetstone estimate` says beforehand what fits ([training-memory.md](training-memory.md)).",
    ),
    Reason.NO_CHAT_TEMPLATE: Remedy(
        on=FAILS,
        look=(DESCRIBE,),
        do="Use an instruct model, or put a `chat_template.jinja` into the model's folder.",
    ),
    Reason.BASE_MODEL_NOT_FOUND: Remedy(
        on=FAILS,
        look=(DESCRIBE, CLAIMS),
        do="Correct the URI of the base model, or fill the volume: the folder holds `config.json`, the tokenizer and"
        " `*.safetensors`.",
    ),
    Reason.RANK_NOT_SERVABLE: Remedy(
        on=FAILS,
        look=("kubectl get modelservers -n NAMESPACE -o yaml",),
        do="Train a smaller `lora.rank`, or raise `adapterCapacity.maxRank` of the ModelServer or set it to `Auto`.",
    ),
    Reason.OUTPUT_OCCUPIED: Remedy(
        on=FAILS,
        look=(DESCRIBE, CLAIMS),
        do="Name another place in `spec.output` of a new object, or remove the folder that the message names: it holds"
        " the result of another recipe, and the message names the difference.",
    ),
    Reason.TRAINING_DIVERGED: Remedy(
        on=FAILS,
        look=(TRAINING_LOG, "kubectl get loratrainingjob NAME -n NAMESPACE -o jsonpath='{.status.progress}'"),
        do="Lower `hyperparameters.learningRate`, or raise it where the message says that the adapter changes nothing;"
        " look for rows that are no language.",
    ),
    Reason.MERGE_DIVERGED: Remedy(
        on=FAILS,
        look=(TRAINING_LOG,),
        do="Serve the adapter itself, which is published and unharmed, or merge into a base of higher precision.",
    ),
    Reason.CHECKPOINT_MISMATCH: Remedy(
        on=FAILS,
        look=(DESCRIBE, CLAIMS),
        do="Go back to the number of processes that the message names, or remove the folder of checkpoints that it"
        " names to begin anew, and ask for a [retry](#ask-for-a-retry).",
    ),
}
