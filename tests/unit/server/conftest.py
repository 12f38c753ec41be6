"""A pod: the fake engine behind the real guard, and the real sidecar."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.adapters import lineage, make_adapter, make_model
from support.fake_vllm import BASE, FakeVllm, record_probe
from whetstone_api.digests import versioned_name
from whetstone_api.pod_state import DesiredAdapter, DesiredState, PodState
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_artifacts.fingerprint import model_fingerprint
from whetstone_server.engine import Engine
from whetstone_server.settings import Settings
from whetstone_server.sidecar import Sidecar

DEADLINE_SECONDS = 20.0
TOKEN = {TOKEN_HEADER: "s3cret"}


@dataclass
class Pod:
    """What a test of the sidecar works with."""

    folder: Path
    engine: FakeVllm
    url: str
    session: aiohttp.ClientSession
    settings: Settings
    sidecar: Sidecar
    revision: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def adapter(self, name: str, *, required: bool = False, alpha: int = 50, **options: Any) -> DesiredAdapter:
        """Publish an adapter in the store; its effect is alpha in hundredths of a nat."""
        place = self.folder / "store" / f"{name}-{alpha}"
        options.setdefault("history", lineage(fingerprint=self.fingerprint))
        options.setdefault("probe", record_probe(effect=alpha / 100, fingerprint=self.fingerprint))
        config = {"lora_alpha": alpha, **options.pop("config", {})}
        digest = make_adapter(place, config=config, **options)
        return DesiredAdapter(
            name=name,
            served_name=versioned_name(name, digest),
            digest=digest,
            source=f"pvc://store/{place.name}",
            path=str(place),
            required=required,
        )

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the base model."""
        return model_fingerprint(self.folder / "model")

    def want(self, *adapters: DesiredAdapter, **fields: Any) -> DesiredState:
        """Give the sidecar a newer desired state."""
        self.revision += 1
        desired = DesiredState(
            server="s",
            revision=self.revision,
            base_name=BASE,
            model_path=str(self.folder / "model"),
            **{"max_rank": 16, "dtype": "float32", **fields},
            adapters=list(adapters),
        )
        self.sidecar.set_desired(desired)
        return desired

    async def until(self, condition: Callable[[PodState], bool]) -> PodState:
        """Wait for a condition on the sidecar's state."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition(state := self.sidecar.state()):
                async with self.sidecar._changed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.sidecar._changed.wait(), 0.2)
        return state

    async def settled(self) -> PodState:
        """Wait for a settled state."""
        return await self.until(lambda state: state.settled)

    async def ask(self, model: str | None, **body: Any) -> tuple[int, str | None, Any]:
        """Ask as a client; return status, answering version and body."""
        request = {"prompt": "x", **({} if model is None else {"model": model}), **body}
        async with self.session.post(f"{self.url}/v1/completions", json=request) as response:
            return response.status, response.headers.get("x-whetstone-adapter"), await response.json()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


@pytest.fixture
async def pod(tmp_path: Path, token_file: Path) -> AsyncIterator[Pod]:
    make_model(tmp_path / "model")
    (tmp_path / "adapters").mkdir()
    engine = FakeVllm(token_file)
    async with engine.served() as url, aiohttp.ClientSession() as session:
        settings = Settings(
            engine_url=url,
            desired_file=tmp_path / "desired.json",
            kept_file=tmp_path / "kept.json",
            adapters_dir=tmp_path / "adapters",
            secrets_dir=tmp_path / "secrets",
            token_file=token_file,
            timer_seconds=0.05,
            busy_seconds=0.02,
            retry_seconds=0.05,
        )
        sidecar = Sidecar(engine=Engine(session, settings), settings=settings)
        loop = asyncio.create_task(sidecar.run())
        yield Pod(folder=tmp_path, engine=engine, url=url, session=session, settings=settings, sidecar=sidecar)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await sidecar.stop()
