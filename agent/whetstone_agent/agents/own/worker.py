"""The process of a user's agent for one trial. It imports the user's code, so it runs where there is nothing to take.

The agent finds the model in `OPENAI_BASE_URL` and the version to ask for in `OPENAI_MODEL`, as OpenAI's clients do, and
in its own `model_name`; the key may be anything.
"""

import argparse
import asyncio
import base64
import contextlib
import importlib
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.agent.context import AgentContext

from whetstone_agent.agents.own.wire import MESSAGE_BYTES, Peer, pack, unpack

log = logging.getLogger(__name__)

_LOST: Final = "the runner is gone"


class RemoteEnvironment(BaseEnvironment):
    """The sandbox as the agent sees it: every call is made by the runner."""

    def __init__(self, peer: Peer) -> None:
        # Not Harbor's own constructor: it wants the task's folder, which the agent must not see.
        self.logger = log
        self.default_user = None
        self._peer = peer
        self._number = 0
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}

    @staticmethod
    def type() -> str:
        """Return the environment's name."""
        return "whetstone-remote"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Return what it can do beyond the basics: nothing."""
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        """Do nothing: it runs."""

    async def stop(self, delete: bool) -> None:
        """Do nothing: the runner stops it."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in the sandbox."""
        asked = {"command": command, "cwd": cwd, "env": env, "timeout_sec": timeout_sec, "user": user}
        found = await self._ask("exec", asked)
        return ExecResult(stdout=found["stdout"], stderr=found["stderr"], return_code=found["return_code"])

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox."""
        content = await asyncio.to_thread(_read, Path(source_path))
        await self._ask("upload_file", {"content": content, "target": target_path})

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder holds into a folder of the sandbox."""
        await self._ask("upload_dir", {"content": pack(Path(source_dir)), "target": target_dir})

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox."""
        found = await self._ask("download_file", {"source": source_path})
        await asyncio.to_thread(Path(target_path).write_bytes, base64.b64decode(found["content"]))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder of the sandbox holds out of it."""
        found = await self._ask("download_dir", {"source": source_dir})
        unpack(found["content"], Path(target_dir))

    async def _ask(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        waiting = self._open[number] = asyncio.get_running_loop().create_future()
        await self._peer.send({"id": number, "environment": call, "arguments": arguments})
        answer = await waiting
        if "error" in answer:
            raise RuntimeError(answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    def answered(self, message: dict[str, Any]) -> None:
        """Hand an answer to who waits for it."""
        waiting = self._open.pop(message["id"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def _read(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def build_agent(message: dict[str, Any], logs: Path) -> BaseAgent:
    """Import the user's class and make its agent.

    Args:
        message: The runner's first message.
        logs: Folder for its files.

    Raises:
        Exception: Whatever the user's code raises.
    """
    os.environ |= {"OPENAI_BASE_URL": message["url"], "OPENAI_API_KEY": "none", "OPENAI_MODEL": message["model"]}
    module, _, name = message["importPath"].partition(":")
    found = getattr(importlib.import_module(module), name)
    cls: Any = found
    if not (isinstance(found, type) and issubclass(found, BaseAgent)):
        raise TypeError(f"{message['importPath']} is no subclass of harbor.agents.base.BaseAgent")
    more = {} if cls.MODEL_CONNECTION is None else {"base_url": message["url"]}
    agent: BaseAgent = cls(
        logs_dir=logs, model_name=message["model"], skip_model_parsing=True, **more, **message["options"]
    )
    agent.environment_logs_dir = PurePosixPath("/logs/agent")
    return agent


class Worker:
    """Serves one trial."""

    def __init__(self, peer: Peer, logs: Path) -> None:
        self._peer = peer
        self._logs = logs
        self._environment = RemoteEnvironment(peer)
        self._agent: BaseAgent | None = None
        self._work: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Follow the runner until it hangs up."""
        while (message := await self._peer.receive()) is not None:
            if "id" in message:
                self._environment.answered(message)
            elif message.get("do") == "stop":
                if self._work is not None:
                    self._work.cancel()
            else:
                self._work = asyncio.create_task(self._follow(message))

    async def _follow(self, message: dict[str, Any]) -> None:
        context = AgentContext()
        answer: dict[str, Any] = {}
        try:
            if message["do"] == "load":
                self._agent = build_agent(message, self._logs)
                answer = {"name": str(self._agent.name()), "version": self._agent.version()}
            else:
                await self._work_on(message, context)
        except asyncio.CancelledError:
            answer["error"] = "stopped"
        except BaseException as error:
            log.exception("the agent failed")
            answer["error"] = f"{type(error).__name__}: {error}"
        told = context.model_dump(mode="json", exclude={"rollout_details"})
        with contextlib.suppress(ConnectionError):
            await self._peer.send({"done": message["do"], **answer, "context": told, "logs": pack(self._logs)})

    async def _work_on(self, message: dict[str, Any], context: AgentContext) -> None:
        if self._agent is None:
            raise RuntimeError("no agent was made")
        if message["do"] == "setup":
            await self._agent.setup(self._environment)
        else:
            await self._agent.run(message["instruction"], self._environment, context)


async def main_async(handle: int) -> None:
    """Serve the trial at the other end of a connected socket."""
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=handle), limit=MESSAGE_BYTES)
    with tempfile.TemporaryDirectory() as logs:
        await Worker(Peer(reader, writer), Path(logs)).serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="whetstone_agent.agents.own.worker")
    parser.add_argument("--socket", type=int, required=True, help="number of the connected socket")
    parser.add_argument("--code", type=Path, required=True, help="folder of the user's modules")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sys.path.insert(0, str(given.code))
    asyncio.run(main_async(given.socket))
