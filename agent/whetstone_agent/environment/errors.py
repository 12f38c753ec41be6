"""What can go wrong with a trial's pod. Hardly any of it is the model's doing: such a trial is void."""

from typing import Final


class PodStartError(Exception):
    """The pod did not start; the message names the cause (image, scheduling, quota)."""


class SandboxLostError(Exception):
    """The pod ended while it was in use."""


class SandboxEvictedError(SandboxLostError):
    """The node or the scheduler took the pod away."""


class SandboxOutOfMemoryError(SandboxLostError):
    """The kernel ended the pod's container for want of memory."""


class SandboxOutOfDiskError(SandboxLostError):
    """The kubelet ended the pod because it wrote more than it may: what the agent did, once it was at work."""


class SandboxExpiredError(SandboxLostError):
    """The pod reached its deadline: the trial took longer than all of its limits together."""


class ExecTransportError(Exception):
    """The connection to the pod broke before the command's exit code came."""


class TransferError(Exception):
    """A copied file is not what was sent, or could not be written."""


class TrialsForbiddenError(Exception):
    """The API server does not let the runner create trial pods; the message is its answer."""


class TooLargeError(Exception):
    """No pod of the namespace may have so much; the message is the API server's answer."""


class QuotaFullError(Exception):
    """The namespace's quota has no room for another pod now; the message is the API server's answer."""


TRIED_AGAIN: Final = (
    "PodStartError",
    "SandboxLostError",
    "SandboxEvictedError",
    "SandboxOutOfMemoryError",
    "ExecTransportError",
    "TransferError",
)
"""Names of errors after which the same trial may well succeed, as Harbor's policies name them."""
NOT_TRIED_AGAIN: Final = ("SandboxExpiredError", "SandboxOutOfDiskError", "TooLargeError")
"""Names of errors that would come again."""
