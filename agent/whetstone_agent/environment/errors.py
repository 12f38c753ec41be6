"""What can go wrong with a trial's pod. None of it is the model's doing: such a trial is void."""

from typing import Final


class PodStartError(Exception):
    """The pod did not start; the message names the cause (image, scheduling, quota)."""


class SandboxLostError(Exception):
    """The pod ended while it was in use (evicted, out of memory, deadline)."""


class ExecTransportError(Exception):
    """The connection to the pod broke before the command's exit code came."""


class TransferError(Exception):
    """A copied file is not what was sent, or could not be written."""


class TrialsForbiddenError(Exception):
    """The API server does not let the runner create trial pods; the message is its answer."""


TRIED_AGAIN: Final = (PodStartError, SandboxLostError, ExecTransportError, TransferError)
"""Errors after which the same trial may well succeed."""
