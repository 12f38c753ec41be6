"""Adapters from outside the cluster: the sidecar downloads them into the pod, hot."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.place_servers import COMMIT, Served, hub_server
from whetstone_api.adapter_artifact import WEIGHTS_FILE
from whetstone_api.pod_state import DesiredAdapter, Effect
from whetstone_api.vocabulary import Reason

from .conftest import Pod

FIELD = "spec.adapters[far].source"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    with hub_server(tmp_path / "hub") as served:
        yield served


def keys(pod: Pod, hub: Served, **values: str) -> None:
    """Mount the Secret `keys` as the kubelet does."""
    folder = pod.settings.secrets_dir / "keys"
    folder.mkdir(parents=True)
    for name, value in {"HF_ENDPOINT": hub.url, **values}.items():
        (folder / name).write_text(value)


def far(pod: Pod, *, repository: str = "team/far", **options: Any) -> DesiredAdapter:
    """Publish an adapter on the hub."""
    local = pod.adapter("far", **options)
    shutil.copytree(local.path, pod.folder / "hub" / repository, dirs_exist_ok=True)
    source = f"hf://{repository}@{COMMIT}"
    return local.model_copy(update={"source": source, "path": "", "field": FIELD, "secret": "keys"})


async def test_adapter_of_a_hub_serves_without_a_restart(pod: Pod, hub: Served) -> None:
    keys(pod, hub)
    pod.want()
    boot = (await pod.settled()).engine_boot
    wanted = far(pod)
    pod.want(wanted)
    state = await pod.settled()
    assert (state.engine_boot, state.adapters[0].effect) == (boot, Effect.VERIFIED)
    assert (await pod.ask("far"))[1] == wanted.served_name


async def test_engine_restart_downloads_nothing_again(pod: Pod, hub: Served) -> None:
    keys(pod, hub)
    pod.want(far(pod))
    boot = (await pod.settled()).engine_boot
    hub.asked.clear()
    pod.engine.restart()
    await pod.until(lambda state: state.settled and state.engine_boot != boot)
    assert hub.asked == []


async def test_missing_secret_is_named_and_its_arrival_noticed(pod: Pod, hub: Served) -> None:
    pod.want(far(pod))
    state = await pod.until(lambda state: bool(state.adapters[0].reason))
    assert state.adapters[0].reason == Reason.SECRET_NOT_FOUND
    assert f"{FIELD}.secretRef: Secret keys does not exist" in state.adapters[0].message
    keys(pod, hub)
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)


async def test_place_that_fails_is_asked_with_growing_pauses(pod: Pod, hub: Served) -> None:
    keys(pod, hub)
    wanted = far(pod)
    shutil.rmtree(pod.folder / "hub" / "team")
    pod.want(wanted)
    state = await pod.until(lambda state: state.adapters[0].reason == Reason.SOURCE_NOT_FOUND)
    assert f"{FIELD}.uri {wanted.source}" in state.adapters[0].message
    held = pod.sidecar._held[wanted.served_name]
    await pod.until(lambda _: held.attempts >= 3)
    assert pod.sidecar._loader._pause(held) >= 4 * pod.settings.retry_seconds
    far(pod)
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)


async def test_wrong_content_is_downloaded_again_only_when_it_changed(pod: Pod, hub: Served) -> None:
    keys(pod, hub)
    wanted = far(pod)
    far(pod, alpha=70)
    pod.want(wanted)
    await pod.until(lambda state: state.adapters[0].reason == Reason.DIGEST_MISMATCH)
    hub.asked.clear()
    held = pod.sidecar._held[wanted.served_name]
    await pod.until(lambda _: held.attempts >= 3)
    assert hub.ranges(WEIGHTS_FILE) == []
    far(pod)
    await pod.until(lambda state: state.adapters[0].effect is Effect.VERIFIED)


async def test_refused_adapter_stops_no_other(pod: Pod, hub: Served) -> None:
    keys(pod, hub)
    hub.authorization = "Bearer other"
    near = pod.adapter("near")
    pod.want(far(pod), near)
    state = await pod.settled()
    assert [(one.name, one.reason) for one in state.adapters] == [("far", Reason.SOURCE_FORBIDDEN), ("near", "")]
    assert (await pod.ask("near"))[1] == near.served_name
