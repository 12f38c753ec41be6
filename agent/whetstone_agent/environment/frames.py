"""Frames of the Kubernetes exec protocol `v5.channel.k8s.io` (KEP-4006), binary.

A message is one byte, the channel, and its payload. Version 5 adds the channel 255: its payload is the number of the
channel that the sender closes, which is how standard input ends without ending the connection.
"""

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

PROTOCOL: Final = "v5.channel.k8s.io"


class Channel(IntEnum):
    """Channels of an exec connection."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One message."""

    channel: int
    payload: bytes


def encode(channel: Channel, payload: bytes) -> bytes:
    """Return the message that carries `payload` on `channel`."""
    return bytes((channel,)) + payload


def encode_close(channel: Channel) -> bytes:
    """Return the message that ends `channel`."""
    return bytes((Channel.CLOSE, channel))


def decode(message: bytes) -> Frame:
    """Read a message.

    Raises:
        ValueError: It is empty, and so has no channel.
    """
    if not message:
        raise ValueError("an exec message without a channel byte")
    return Frame(channel=message[0], payload=message[1:])


def exit_code(status: bytes) -> int:
    """Read the payload of the status channel, a `metav1.Status`, as an exit code.

    Raises:
        ValueError: The command did not run to an exit code; the message is the server's.
    """
    data = json.loads(status)
    if data.get("status") == "Success":
        return 0
    for cause in (data.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ValueError(str(data.get("message") or data))
