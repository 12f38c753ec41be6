"""Reasons that objects of all kinds have."""

from collections.abc import Mapping
from typing import Final

from whetstone_api.remedies.remedy import (
    CLAIMS,
    CONFIG_MAPS,
    DESCRIBE,
    ENDS,
    FAILS,
    JOBS,
    LABELS,
    LOADED,
    OBJECTS,
    OPERATOR_LOG,
    QUOTA,
    QUOTAS,
    READY,
    SECRETS,
    STALLS,
    STATUS,
    WAITS,
    Remedy,
)
from whetstone_api.vocabulary import ConditionType, Reason

REMEDIES: Final[Mapping[Reason, Remedy]] = {
    Reason.PROGRESSING: Remedy(
        on=WAITS,
        look=(DESCRIBE, JOBS),
        do="Wait: the message says for what. If it stays for long, look at the pods, and at whether an operator is at"
        " work.",
    ),
    Reason.SUCCEEDED: Remedy(on=ENDS, look=(STATUS,), do="Nothing: the result is in the status."),
    Reason.ADOPTED: Remedy(
        on=ENDS,
        look=(STATUS,),
        do="Nothing, if you want that result. To train or measure anew, name another place in `spec.output` of a new"
        " object, or empty this one.",
    ),
    Reason.SUSPENDED: Remedy(
        on=(*READY, ConditionType.SUSPENDED, *QUOTA),
        look=(DESCRIBE,),
        do="Set `spec.suspend` to false. A training goes on from its last checkpoint, a benchmark keeps its finished"
        " trials.",
    ),
    Reason.REFERENCE_NOT_FOUND: Remedy(
        on=(*WAITS, *LOADED),
        look=(OBJECTS, DESCRIBE),
        do="Create the object that the message names, in the same namespace, or correct the name. Objects may come in"
        " any order: as soon as it is there, this one goes on.",
    ),
    Reason.REFERENCE_NOT_READY: Remedy(
        on=WAITS,
        look=(OBJECTS, "kubectl describe modelservers,loratrainingjobs,benchmarkruns -n NAMESPACE"),
        do="Wait for the object that the message names; if it does not get ready, its own conditions say why. An alias"
        " with several targets is never ready for a benchmark: measure one of its adapters.",
    ),
    Reason.REFERENCE_FAILED: Remedy(
        on=(*FAILS, *LOADED),
        look=(OBJECTS, "kubectl describe loratrainingjobs,benchmarkruns -n NAMESPACE"),
        do="Mend the object that the message names, ask it for a [retry](#ask-for-a-retry), then this one too; a server"
        " goes on by itself. Or name another object.",
    ),
    Reason.CLAIM_NOT_FOUND: Remedy(
        on=WAITS,
        look=(CLAIMS,),
        do="Create the PersistentVolumeClaim in the object's namespace, or correct its name in the field that the"
        " message names. It goes on by itself.",
    ),
    Reason.CONFIG_MAP_NOT_FOUND: Remedy(
        on=WAITS,
        look=(CONFIG_MAPS,),
        do="Create the ConfigMap, or the key in it, that the message names. A server's pods that run keep the chat"
        " template that they have.",
    ),
    Reason.SECRET_NOT_FOUND: Remedy(
        on=(*WAITS, *LOADED),
        look=(SECRETS,),
        do="Create the Secret in the object's namespace, or add the key that the message names;"
        " [sources.md](sources.md) lists which keys each kind of place asks for.",
    ),
    Reason.SOURCE_NOT_FOUND: Remedy(
        on=(*FAILS, *LOADED),
        look=(DESCRIBE,),
        do="Correct repository, bucket, path or revision in the URI that the message names. A private repository of"
        " the Hugging Face Hub answers the same without a token: then name a Secret in `secretRef`.",
    ),
    Reason.SOURCE_FORBIDDEN: Remedy(
        on=(*FAILS, *LOADED),
        look=(DESCRIBE, SECRETS),
        do="Name a Secret in `secretRef` that may read the place, or correct its keys. A gated repository must be"
        " accepted on the Hub by the owner of the token.",
    ),
    Reason.SOURCE_UNREACHABLE: Remedy(
        on=(*WAITS, *LOADED),
        look=(DESCRIBE, "kubectl get networkpolicies -n NAMESPACE"),
        do="It is tried again by itself. Look at the endpoint in the Secret or the URI, the proxy, the certificate and"
        " the NetworkPolicies; the message has the words of the connection.",
    ),
    Reason.DISK_FULL: Remedy(
        on=(*WAITS, *LOADED),
        look=(DESCRIBE, CLAIMS),
        do="Give the volume or the node as much room as the message says: expand the claim, remove results that nobody"
        " needs, or use a claim instead of the node's disk (`model.cache`, `workspace`). It is tried again by itself.",
    ),
    Reason.INVALID_SPEC: Remedy(
        on=STALLS,
        look=(DESCRIBE,),
        do="Change the field that the message names. A server takes the change over, and pods that run go on until"
        " then; a training or a benchmark has a fixed spec: create it anew.",
    ),
    Reason.NAME_TAKEN: Remedy(
        on=STALLS,
        look=(DESCRIBE,),
        do="Delete or rename the object that the message names, if nobody needs it under that name; it is noticed"
        " within `operator.resyncSeconds`, or with the next change of ours. Else create ours anew under another name.",
    ),
    Reason.APPLY_REFUSED: Remedy(
        on=(*WAITS, ConditionType.STALLED),
        look=(DESCRIBE, QUOTAS, LABELS),
        do="Read the API server's words in the message: a misspelt field in `podTemplate`, a class that does not exist,"
        " a quota, pod security or another policy of the namespace, or missing rights of the operator. What time or"
        " rights can mend is tried again by itself.",
    ),
    Reason.POD_FAILED: Remedy(
        on=(*WAITS, ConditionType.STALLED),
        look=(JOBS, "kubectl describe pods -n NAMESPACE -l app.kubernetes.io/managed-by=whetstone"),
        do="Correct what the message names: the image or its pull secret, resources or placement that no node offers,"
        " a volume that cannot be mounted. A pod that ended without a report was killed from outside or lacked memory:"
        " raise `resources`.",
    ),
    Reason.INTERNAL_ERROR: Remedy(
        on=WAITS,
        look=(OPERATOR_LOG,),
        do="Nothing at first: it is tried again with growing pauses. If it stays, report it with what"
        " [`whetstone must-gather`](must-gather.md) collects.",
    ),
    Reason.DEADLINE_EXCEEDED: Remedy(
        on=FAILS,
        look=(DESCRIBE, JOBS),
        do="Raise `spec.activeDeadlineSeconds` (it may be changed until success) and ask for a"
        " [retry](#ask-for-a-retry). Checkpoints and finished trials are kept.",
    ),
    Reason.ATTEMPTS_EXHAUSTED: Remedy(
        on=FAILS,
        look=(DESCRIBE, JOBS),
        do="The message has the last pod's words; `OOMKilled` asks for more memory in `spec.resources`, which may be"
        " changed until success. Then ask for a [retry](#ask-for-a-retry).",
    ),
}
