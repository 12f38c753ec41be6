"""Reasons of a ModelServer."""

from collections.abc import Mapping
from typing import Final

from whetstone_api.remedies.remedy import (
    ADAPTERS,
    ALIASES,
    DESCRIBE,
    EFFECTIVE,
    ENGINE_DESCRIBED,
    ENGINE_LOG,
    ENGINE_LOG_BEFORE,
    ENGINE_PODS,
    EVENT,
    FETCH_LOG,
    LOADED,
    OBJECTS,
    READY,
    SIDECAR_LOG,
    STALLS,
    WAITS,
    Remedy,
)
from whetstone_api.vocabulary import ConditionType, Reason

_PARITY: Final = (ConditionType.BASE_PARITY,)
_TEMPLATE: Final = (ConditionType.TEMPLATE_PARITY,)

REMEDIES: Final[Mapping[Reason, Remedy]] = {
    Reason.SERVING: Remedy(on=READY, look=(ENGINE_PODS,), do="Nothing: the server serves."),
    Reason.BENCHMARK_RUNNING: Remedy(
        on=(ConditionType.HELD,),
        look=(OBJECTS,),
        do="Nothing: a change that waits is applied when the benchmark ends. To go on at once, suspend or delete the"
        " run that the message names.",
    ),
    Reason.UPGRADE_WAITS: Remedy(
        on=(ConditionType.OUTDATED,),
        look=(OBJECTS, "kubectl get modelservers --all-namespaces"),
        do="Nothing, as long as the servers that the message names become ready. When one of them does not, mend or"
        " delete it: until then no other server is restarted. A change of the spec that restarts the engines takes the"
        " upgrade with it, and `operator.engineUpgrades` of the chart says how many servers are restarted at a time.",
    ),
    Reason.SCALED_TO_ZERO: Remedy(
        on=READY,
        look=("kubectl get modelserver,horizontalpodautoscaler -n NAMESPACE",),
        do="Nothing, if you want no pods; else raise `spec.replicas`.",
    ),
    Reason.FETCHING_MODEL: Remedy(
        on=WAITS,
        look=(ENGINE_PODS, FETCH_LOG),
        do="Wait. With `model.cache` the model is fetched once for all pods, and stays.",
    ),
    Reason.IMAGE_VOLUMES_UNSUPPORTED: Remedy(
        on=STALLS,
        look=("kubectl version", "kubectl get nodes -o wide"),
        do="Turn on the feature gate `ImageVolume` of API server and kubelets (containerd 2.1 or newer), or leave out"
        " `model.imageVolume`: the model is fetched then.",
    ),
    Reason.ENGINE_STARTING: Remedy(
        on=WAITS,
        look=(ENGINE_LOG,),
        do="Wait: the engine loads the model. A large model on a slow volume needs a larger `startup.timeoutSeconds`.",
    ),
    Reason.ENGINE_FAILED: Remedy(
        on=(*WAITS, ConditionType.STALLED),
        look=(ENGINE_LOG_BEFORE, ENGINE_DESCRIBED),
        do="Change the field that the message names; it has the engine's last lines. Usual are too little memory of"
        " the GPU (`engine.maxModelLength`, `engine.gpuMemoryUtilization`, `adapterCapacity`), of the pod"
        " (`OOMKilled`: `resources`), and arguments that this engine does not know.",
    ),
    Reason.ENGINE_STALLED: Remedy(
        on=WAITS,
        look=(ENGINE_LOG_BEFORE, ENGINE_PODS),
        do="Nothing at first: the engine's container is started again. If it comes back, look at the GPU, its driver"
        " (`dmesg` of the node) and the engine's log.",
    ),
    Reason.BASE_DIVERGENT: Remedy(
        on=STALLS,
        look=(ADAPTERS, SIDECAR_LOG),
        do="The pod gets no clients. Set `engine.dtype: Float32` on CPUs, use another image or node, or the model's"
        " revision that adapters were trained on ([verified-effect.md](verified-effect.md)).",
    ),
    Reason.STARTUP_TIMEOUT: Remedy(
        on=STALLS,
        look=(ENGINE_LOG, ENGINE_DESCRIBED),
        do="Look at what the engine does in its log; raise `startup.timeoutSeconds` if it was only slow. It recovers by"
        " itself when a pod becomes Ready.",
    ),
    Reason.ALL_LOADED: Remedy(on=LOADED, look=(ADAPTERS,), do="Nothing: every replica holds every adapter."),
    Reason.LOADING: Remedy(
        on=(*LOADED, *EFFECTIVE),
        look=(ADAPTERS, SIDECAR_LOG),
        do="Wait: adapters are being fetched, loaded or probed. `status.adapters` says on how many replicas each is"
        " done.",
    ),
    Reason.NO_ADAPTERS: Remedy(on=LOADED, look=(ADAPTERS,), do="Nothing, or add `spec.adapters`."),
    Reason.VERIFIED: Remedy(
        on=(*EFFECTIVE, *_PARITY, *_TEMPLATE),
        look=(ADAPTERS,),
        do="Nothing: what the engines compute is what was recorded.",
    ),
    Reason.CHANGED: Remedy(
        on=EFFECTIVE,
        look=(ADAPTERS,),
        do="Nothing: the adapter has an effect. To have it compared too, publish it by a LoRATrainingJob, which"
        " records a probe.",
    ),
    Reason.NO_EFFECT: Remedy(
        on=EFFECTIVE,
        look=(ADAPTERS, SIDECAR_LOG),
        do="The adapter gets no requests. Its modules match none of this base, or its weights are zero: look at"
        " `target_modules` of its `adapter_config.json` and at how it was made, and publish another version.",
    ),
    Reason.DIVERGENT: Remedy(
        on=(*EFFECTIVE, *_PARITY),
        look=(ADAPTERS, SIDECAR_LOG),
        do="Serve the base revision, precision and quantization that the adapter was trained on. Of the base itself:"
        " set `engine.dtype: Float32` on CPUs. The message names pod, record and both figures.",
    ),
    Reason.TEMPLATE_MISMATCH: Remedy(
        on=_TEMPLATE,
        look=(ADAPTERS, DESCRIBE),
        do="Serve the template and the tokenizer that the adapter was trained with: leave `engine.chatTemplate` out,"
        " or train again with this one.",
    ),
    Reason.NOT_RECORDED: Remedy(
        on=(*EFFECTIVE, *_PARITY, *_TEMPLATE),
        look=(ADAPTERS,),
        do="Nothing can be judged, and nothing is held back. For a verdict, publish the adapter by a LoRATrainingJob,"
        " or serve in the precision that its probe was recorded in.",
    ),
    Reason.NOT_PUBLISHED: Remedy(
        on=LOADED,
        look=("kubectl get loratrainingjobs -n NAMESPACE", DESCRIBE),
        do="Wait for the LoRATrainingJob; if it does not end, its own conditions say why.",
    ),
    Reason.NAME_CONFLICT: Remedy(
        on=LOADED,
        look=("kubectl get loratrainingjobs -n NAMESPACE --show-labels", ADAPTERS),
        do="Rename the adapter or alias that has the name, or take the selected label off the job.",
    ),
    Reason.TOO_MANY_ADAPTERS: Remedy(
        on=LOADED,
        look=("kubectl get loratrainingjobs -n NAMESPACE --show-labels", ADAPTERS),
        do="Select fewer jobs: take the label off those that nobody asks for. Those published first are served.",
    ),
    Reason.STORE_NOT_MOUNTED: Remedy(
        on=LOADED,
        look=(ADAPTERS,),
        do="Add the claim or the Secret that the message names to `spec.adapterStores`. Pods restart for that: list"
        " them from the start where you know them.",
    ),
    Reason.ADAPTER_INVALID: Remedy(
        on=LOADED,
        look=(ADAPTERS, SIDECAR_LOG),
        do="The files are no adapter that this engine can load (pickled weights, DoRA, `modules_to_save`, tensors that"
        " are cut short or not finite): the message says what, and in which file. Save it again as safetensors.",
    ),
    Reason.DIGEST_MISMATCH: Remedy(
        on=(*LOADED, ConditionType.FAILED),
        look=(ADAPTERS, DESCRIBE),
        do="Somebody has changed the files, or the digest is another one's. Restore them, or name the digest that the"
        " message shows (`whetstone digest FOLDER` prints it).",
    ),
    Reason.ADAPTER_NOT_FOUND: Remedy(
        on=LOADED,
        look=(ADAPTERS,),
        do="Correct the path, or put the adapter there: a folder with `adapter_config.json` and"
        " `adapter_model.safetensors`.",
    ),
    Reason.LOAD_FAILED: Remedy(
        on=LOADED,
        look=(ADAPTERS, ENGINE_LOG),
        do="Read the engine's answer in the message. It is tried again when the adapter or the engine changes.",
    ),
    Reason.RANK_TOO_HIGH: Remedy(
        on=LOADED,
        look=(ADAPTERS,),
        do="Raise `adapterCapacity.maxRank` or set it to `Auto` (pods restart), or train a smaller `lora.rank`.",
    ),
    Reason.BASE_MISMATCH: Remedy(
        on=LOADED,
        look=(ADAPTERS,),
        do="Serve the adapter on the base that it was trained on, or train it on this one.",
    ),
    Reason.CAPACITY_RAISED: Remedy(
        on=(EVENT,),
        look=("kubectl get modelserver NAME -n NAMESPACE -o jsonpath='{.status.capacity}'", ENGINE_PODS),
        do="Nothing: engines restart one by one with room for the adapter that the Event names. To avoid it, keep more"
        " `adapterCapacity.headroom`.",
    ),
    Reason.ALIAS_MOVED: Remedy(
        on=(EVENT,),
        look=(ALIASES,),
        do="Nothing: `status.aliases` has what it serves now, why, and the run that showed it.",
    ),
}
