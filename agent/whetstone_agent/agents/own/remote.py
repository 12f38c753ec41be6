"""The runner's side of a user's agent: it lets the code work over the socket, and makes its calls of the sandbox."""

import asyncio
import base64
import contextlib
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from whetstone_agent.agents.errors import AgentFailedError, AgentHostLostError
from whetstone_agent.agents.own.wire import MESSAGE_BYTES, Peer, pack, unpack
from whetstone_agent.environment.errors import TransferError

_CONNECT_SECONDS: Final = 90.0
"""How long the container of the code may take to start."""
_PAUSE_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 5.0
"""How long a stopped agent may take to hand over its files."""


class OwnAgent(BaseAgent):
    """A user's agent, working elsewhere.

    Args:
        logs_dir: Folder of its files here.
        import_path: `module:Class` of the code.
        options: Arguments of the class.
        place: The socket.
        url: Base URL of the model for this trial.
    """

    def __init__(
        self,
        logs_dir: Path,
        model_name: str,
        *,
        import_path: str,
        options: dict[str, Any],
        place: str,
        url: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(logs_dir, model_name, skip_model_parsing=True, **kwargs)
        self._load = {"importPath": import_path, "options": options, "url": url, "model": model_name}
        self._place = place
        self._peer: Peer | None = None
        self._version: str | None = None

    @staticmethod
    def name() -> str:
        """Return the name in Harbor's results."""
        return "own"

    def version(self) -> str | None:
        """Return what the code says of itself, once it is loaded."""
        return self._version

    async def setup(self, environment: BaseEnvironment) -> None:
        """Load the code, and let it prepare the sandbox.

        Raises:
            AgentHostLostError: The code's container does not answer; the trial is void.
            AgentFailedError: The code failed; the trial is void too, for it never began.
        """
        await self.load()
        await self._do({"do": "setup"}, environment)

    async def load(self) -> None:
        """Connect, import the code and make the agent.

        Raises:
            AgentHostLostError, AgentFailedError: As in `setup`.
        """
        reader, writer = await _connect(self._place)
        self._peer = Peer(reader, writer)
        # Harbor does not say when a trial's last step is over, but lets go of its agent then.
        weakref.finalize(self, writer.close)
        done = await self._do({"do": "load", **self._load}, None)
        self._version = done.get("version")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Let the code work.

        Raises:
            AgentFailedError: The code failed: the agent's own end, and scored.
            AgentHostLostError: Its container is gone; the trial is void.
        """
        done = await self._do({"do": "run", "instruction": instruction}, environment)
        _take_over(done, context)

    async def close(self) -> None:
        """Hang up; the code's process ends."""
        if self._peer is not None:
            await self._peer.close()
            self._peer = None

    async def _do(self, message: dict[str, Any], environment: BaseEnvironment | None) -> dict[str, Any]:
        peer = self._peer
        if peer is None:
            raise AgentHostLostError("the agent's process was not started")
        await _send(peer, message)
        try:
            done = await self._follow(peer, environment)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError, AgentFailedError, AgentHostLostError):
                await _send(peer, {"do": "stop"})
                async with asyncio.timeout(_STOP_SECONDS):
                    self._keep(await self._follow(peer, None))
            await self.close()
            raise
        except BaseExceptionGroup as group:
            await self.close()
            raise _first(group) from None
        self._keep(done)
        if done.get("error"):
            await self.close()
            raise AgentFailedError(str(done["error"])[:2000])
        return done

    async def _follow(self, peer: Peer, environment: BaseEnvironment | None) -> dict[str, Any]:
        """Make the code's calls until it is done. Several may be under way at once."""
        async with asyncio.TaskGroup() as calls:
            while (message := await peer.receive()) is not None:
                if "done" in message:
                    return message
                if environment is not None:
                    calls.create_task(_call(peer, environment, message))
        raise await _ended(self._place)

    def _keep(self, done: dict[str, Any]) -> None:
        with contextlib.suppress(ValueError):
            unpack(str(done.get("logs", "")), self.logs_dir)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _take_over(done: dict[str, Any], context: AgentContext) -> None:
    """Keep what the code says of itself; token counts are the door's."""
    told = done.get("context")
    metadata = told.get("metadata") if isinstance(told, dict) else None
    if isinstance(metadata, dict):
        context.metadata = {"agent": metadata}


async def _call(peer: Peer, environment: BaseEnvironment, message: dict[str, Any]) -> None:
    """Make one call of the sandbox. What the code asked for wrongly it hears; what the sandbox lost ends the trial."""
    try:
        result = await _perform(environment, str(message["environment"]), dict(message["arguments"]))
    except (KeyError, TypeError, ValueError, OSError, RuntimeError, TransferError) as error:
        await _send(peer, {"id": message.get("id"), "error": f"{type(error).__name__}: {error}"})
        return
    await _send(peer, {"id": message["id"], "result": result})


async def _perform(environment: BaseEnvironment, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if call == "exec":
        done = await environment.exec(**arguments)
        return {"stdout": done.stdout or "", "stderr": done.stderr or "", "return_code": done.return_code}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copied"
        if call == "upload_file":
            place.write_bytes(base64.b64decode(arguments["content"]))
            await environment.upload_file(place, str(arguments["target"]))
        elif call == "upload_dir":
            unpack(arguments["content"], place)
            await environment.upload_dir(place, str(arguments["target"]))
        elif call == "download_file":
            await environment.download_file(str(arguments["source"]), place)
            return {"content": base64.b64encode(place.read_bytes()).decode()}
        elif call == "download_dir":
            place.mkdir()
            await environment.download_dir(str(arguments["source"]), place)
            return {"content": pack(place)}
        else:
            raise ValueError(f"there is no call {call!r}")
    return {}


async def _send(peer: Peer, message: dict[str, Any]) -> None:
    try:
        await peer.send(message)
    except (ConnectionError, OSError) as error:
        raise AgentFailedError(f"the process of the agent ended: {error}") from error


async def _connect(place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    deadline = asyncio.get_running_loop().time() + _CONNECT_SECONDS
    while True:
        try:
            return await asyncio.open_unix_connection(place, limit=MESSAGE_BYTES)
        except OSError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise AgentHostLostError(f"the container of the agent does not answer: {error}") from error
            await asyncio.sleep(_PAUSE_SECONDS)


async def _ended(place: str) -> Exception:
    """Say why the code's process hung up: its own doing, unless its container is gone too."""
    try:
        _, writer = await asyncio.open_unix_connection(place)
    except OSError:
        return AgentHostLostError("the container of the agent ended")
    writer.close()
    return AgentFailedError("the process of the agent ended")
