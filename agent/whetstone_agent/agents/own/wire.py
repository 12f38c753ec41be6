"""The messages between the runner and the process of a user's agent: lines of JSON; folders as tar archives."""

import asyncio
import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any, Final

MESSAGE_BYTES: Final = 128 << 20
"""Longest message; a folder that takes more cannot be copied."""


class Peer:
    """One end of the socket.

    Args:
        reader: What comes in.
        writer: What goes out.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            ConnectionError: The other end is gone.
            ValueError: The message is too long.
        """
        line = json.dumps(message).encode() + b"\n"
        if len(line) > MESSAGE_BYTES:
            raise ValueError(f"a message of {len(line)} bytes is longer than {MESSAGE_BYTES}")
        async with self._lock:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the other end is gone or does not keep to the protocol."""
        try:
            message = json.loads(await self._reader.readline())
        except (ValueError, RecursionError, ConnectionError):
            return None
        return message if isinstance(message, dict) else None

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()


def pack(folder: Path) -> str:
    """Return a folder's plain files and folders as text. Links are left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if not path.is_symlink() and (path.is_dir() or path.is_file()):
                archive.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False)
    return base64.b64encode(buffer.getvalue()).decode()


def unpack(text: str, folder: Path) -> None:
    """Put what `pack` took into a folder.

    Raises:
        ValueError: It is no archive, or holds something else than plain files and folders inside the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text, validate=True)), mode="r:gz") as archive:
            members = archive.getmembers()
            strange = [member.name for member in members if not (member.isreg() or member.isdir())]
            if strange:
                raise ValueError(f"{strange[0]!r} is neither a file nor a folder")
            archive.extractall(folder, members=members, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(str(error)) from error
