"""A user's agent from its spec: its identity, its settings, and the first look at it before any trial."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harbor.agents.base import BaseAgent
from whetstone_api.benchmark_agent import AgentSpec
from whetstone_api.vocabulary import Reason

from whetstone_agent.agents.door import Door
from whetstone_agent.agents.errors import AgentFailedError
from whetstone_agent.agents.options import read_options
from whetstone_agent.failure import RunFailure, hold_to_digest

PARAMETERS: Final = frozenset[str]()
"""It has options only: its class's own arguments."""
_LEFT_OUT: Final = "__pycache__"


def settings(agent: AgentSpec) -> dict[str, Any]:
    """Return its settings."""
    return {"importPath": agent.import_path, "options": read_options(agent.options or {})}


def build(*, door: Door, url: str, settings: dict[str, Any], logs_dir: Path, **common: Any) -> BaseAgent:
    """Return the runner's side of it for one trial."""
    from whetstone_agent.agents.own.remote import OwnAgent

    return OwnAgent(
        logs_dir,
        door.served_name,
        import_path=settings["importPath"],
        options=settings["options"],
        place=door.agent_socket,
        url=url,
        **{key: value for key, value in common.items() if key != "skip_model_parsing"},
    )


def code_digest(folder: Path) -> str:
    """Return the digest of the code: every file's path and content. A ConfigMap's folder has links to files.

    Raises:
        RunFailure: `INVALID_SPEC`: there is no file.
    """
    total = hashlib.sha256()
    files = sorted(_files(folder))
    if not files:
        raise RunFailure(
            Reason.INVALID_SPEC, f"spec.agent: {folder} holds no file; name the folder of the agent's code"
        )
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return f"sha256:{total.hexdigest()}"


def require_digest(agent: AgentSpec) -> None:
    """Hold code in a claim to the digest that the spec names, if it does.

    Raises:
        RunFailure: `DIGEST_MISMATCH`.
    """
    source = agent.source
    if source is None or source.digest is None or agent.claimed is None:
        return
    hold_to_digest(Path(agent.claimed.mount_path), source.digest, f"spec.agent.source ({source.uri})")


async def look_at(agent: AgentSpec, door: Door, logs_dir: Path) -> None:
    """Load the code once before any trial: what cannot be imported or made fails the run, and not each trial.

    Raises:
        RunFailure: `INVALID_SPEC` with the code's own error.
    """
    session = door.enter(seed=0, token_limit=None)
    own = build(door=door, url=session.url, settings=settings(agent), logs_dir=logs_dir)
    try:
        await own.load()
    except AgentFailedError as error:
        message = f"spec.agent.importPath {agent.import_path}: {error}; fix the code, or spec.agent.options"
        raise RunFailure(Reason.INVALID_SPEC, message) from error
    finally:
        door.leave(session)
        await own.close()


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith("..") and name != _LEFT_OUT]
        yield from (path for name in names if (path := Path(place) / name).is_file())
