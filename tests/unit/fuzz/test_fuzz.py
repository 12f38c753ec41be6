"""Generated and mutated artifacts: each is taken, or refused in a sentence; nothing crashes or hangs.

Every case has a number, which is its seed: a failure names it.
"""

import gzip
import io
import json
import random
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from support.adapters import MODEL_CONFIG, lineage, lora_tensors, make_adapter
from support.data_rows import asked, call, called, conversation, said, write_rows
from support.fake_vllm import BASE, FakeVllm, record_probe
from support.mutation import mutated_bytes, mutated_json, mutated_value
from support.run_results import run_artifact
from support.waiting import machine_factor
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import GUARD_PATH, GuardRoutes, PodState
from whetstone_api.reports import Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import RESULTS_FILE
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_artifacts.adoption import find_adapter, find_run
from whetstone_artifacts.archives import Allowance, ArchiveError, unpack_tar
from whetstone_artifacts.data.reading import read_all
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import verify_adapter
from whetstone_artifacts.preflight import check_adapter
from whetstone_artifacts.report.trials import read_detail
from whetstone_artifacts.zip_archives import unpack_zip
from whetstone_operator.controllers.job_outcome import judge
from whetstone_operator.resources.modelserver import build_template
from whetstone_operator.resources.overlay import OverlayError
from whetstone_operator.runtime.outcome import Interrupt
from whetstone_operator.settings import Settings
from whetstone_server.guard.whetstone_guard.asgi import Receive, Scope, Send, send_json

SETTINGS = Settings(server_image="r/s:1", trainer_image="r/t:1", benchmark_image="r/b:1", operator_url="http://op")
SLOWEST_SECONDS = 20.0
"""For one case on a machine of factor 1; a hang takes for ever."""
SHORT, LONG = 30, 300
"""Cases of each target."""
Attack = Callable[[random.Random, Path], None]
MESSAGES = [said("user", "list"), called(call("ls", "c1", path=".")), said("tool", "a.txt"), said("assistant", "done")]


def adapter(rng: random.Random, folder: Path) -> None:
    """An adapter's folder, one of its files changed."""
    make_adapter(folder / "a", tensors=lora_tensors(), history=lineage(), probe=record_probe(effect=0.5))
    files = sorted(path for path in (folder / "a").iterdir() if path.is_file())
    path = rng.choice(files)
    change = mutated_json if path.suffix == ".json" else mutated_bytes
    path.write_bytes(change(rng, path.read_bytes()))
    for look in (
        lambda: verify_adapter(folder / "a", None),
        lambda: check_adapter(folder / "a", base_fingerprint="sha256:base", max_rank=16, model_config=MODEL_CONFIG),
        lambda: find_adapter(folder / "a", "sha256:0"),
    ):
        refusable(look)


def dataset(rng: random.Random, folder: Path) -> None:
    """A file of rows, changed as rows and as bytes."""
    shared = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    rows: list[Any] = [conversation(*MESSAGES), asked("why?"), {"prompt": "a", "completion": "b"}, shared]
    rows = [mutated_value(rng, row) if rng.random() < 0.7 else row for row in rows]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    if rng.random() < 0.4:
        path.write_bytes(mutated_bytes(rng, path.read_bytes()))
    refusable(lambda: list(read_all([path])))


def parquet(rng: random.Random, folder: Path) -> None:
    """A Parquet file with changed bytes."""
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([conversation(said("user", "a"), said("assistant", "b"))] * 3), path)
    path.write_bytes(mutated_bytes(rng, path.read_bytes()))
    refusable(lambda: list(read_all([path])))


def results(rng: random.Random, folder: Path) -> None:
    """Results of a run, and a trial's files as a hostile task may leave them."""
    (folder / RESULTS_FILE).write_bytes(mutated_json(rng, run_artifact([]).to_json().encode()))
    refusable(lambda: find_run(folder, "sha256:0"))
    trial = folder / "trial"
    (trial / "agent").mkdir(parents=True)
    step = {"step_id": 1, "source": "agent", "message": "m", "tool_calls": [{"arguments": {"command": "ls"}}]}
    step |= {"observation": {"results": [{"content": "Exit code: 0"}]}, "extra": {"note": "n"}}
    outcome = {
        "exception_info": {"exception_type": "E", "exception_message": "m"},
        "agent_result": {"n_input_tokens": 1},
    }
    outcome |= {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z", "step_results": [{}]}
    (trial / "result.json").write_bytes(mutated_json(rng, json.dumps(outcome).encode()))
    (trial / "agent" / "trajectory.json").write_bytes(mutated_json(rng, json.dumps({"steps": [step] * 2}).encode()))
    read_detail(trial, results=folder, room=4000)


def archive(rng: random.Random, folder: Path) -> None:
    """An archive of tasks with changed bytes."""
    stream, compress = io.BytesIO(), rng.choice((bytes, partial(gzip.compress, mtime=0)))
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("a/task.toml", "a/tests/test.sh"):
            member = tarfile.TarInfo(rng.choice((name, f"../{name}", f"/{name}")))
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    (folder / "t").mkdir()
    content = mutated_bytes(rng, compress(stream.getvalue()))
    refusable(lambda: unpack_tar(io.BytesIO(content), folder / "t", Allowance()))
    assert sorted(path.name for path in folder.iterdir()) == ["t"]


def zipped(rng: random.Random, folder: Path) -> None:
    """A zip archive of tasks with changed bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name in ("a/task.toml", "a/tests/test.sh"):
            member = zipfile.ZipInfo(rng.choice((name, f"../{name}", f"/{name}")))
            member.compress_type = archive.compression
            archive.writestr(member, b"abc")
    (folder / "t").mkdir()
    content = mutated_bytes(rng, stream.getvalue())
    refusable(lambda: unpack_zip(io.BytesIO(content), folder / "t", Allowance()))
    assert sorted(path.name for path in folder.iterdir()) == ["t"]


def ending(rng: random.Random, _: Path) -> None:
    """The termination message and the pod of a Job."""
    report = TerminationReport(outcome=Outcome.SUCCEEDED, reason="Succeeded", message="m", result={"metrics": {}})
    text = mutated_json(rng, report.to_json().encode()).decode(errors="replace")
    ended = {"exitCode": 0, "message": text[:4096], "finishedAt": "2026-01-01T00:00:00Z"}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    kind = rng.choice(("Complete", "Failed"))
    job = {"metadata": {"name": "j"}, "spec": {}, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    judge(job, [{"metadata": {"name": "p"}, "status": status}])


def report(rng: random.Random, _: Path) -> None:
    """What pods send to the operator."""
    told = {"phase": "Train", "step": 1, "maxSteps": 2, "loss": 0.5, "adapter": {"uri": "pvc://a/b"}}
    state = {"podUid": "u", "revision": 1, "ready": True, "adapters": []}
    for model, value in ((ProgressReport, told), (PodState, state)):
        content = mutated_json(rng, json.dumps(value).encode())
        refusable(lambda model=model, content=content: model.model_validate_json(content))


SPECS: dict[type[Any], dict[str, Any]] = {
    ModelServer: {
        "model": {"source": {"uri": "pvc://models/base"}, "servedName": "base"},
        "engine": {"dtype": "Float32", "extraArgs": ["--max-num-seqs=4"], "env": [{"name": "A", "value": "b"}]},
        "adapterStores": [{"name": "store", "claimName": "adapters"}],
        "adapters": [{"name": "a", "source": {"uri": "pvc://adapters/a", "digest": "sha256:" + "a" * 64}}],
        "aliases": [{"name": "prod", "targets": [{"adapter": "a", "weight": 1}]}],
        "podTemplate": {"spec": {"containers": [{"name": "engine", "env": [{"name": "K", "value": "v"}]}]}},
        "resources": {"limits": {"memory": "1Gi"}},
    },
    LoRATrainingJob: {
        "baseModel": {"source": {"uri": "pvc://models/base"}},
        "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}, "weight": "1"}],
        "workspace": {"claimName": "work"},
        "output": {"adapter": {"uri": "pvc://adapters/a"}, "push": [{"name": "p", "uri": "pvc://o/a"}]},
        "hyperparameters": {"learningRate": "0.0001", "epochs": 1},
    },
    BenchmarkRun: {
        "target": {"modelServerRef": {"name": "server"}},
        "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
        "gates": [{"metric": "Mean", "minimum": "0.5"}],
        "output": {"uri": "pvc://results/run"},
    },
}


def spec(rng: random.Random, _: Path) -> None:
    """A spec that the schema of an older release may have let through."""
    kind = rng.choice(list(SPECS))
    wire = {"metadata": {"name": "o", "namespace": "n", "uid": "u" * 36, "generation": 1}}
    wire["spec"] = mutated_value(rng, SPECS[kind])

    def build() -> None:
        made = kind.model_validate(wire)
        if isinstance(made, ModelServer):
            build_template(made, SETTINGS)

    refusable(build)


TARGETS: tuple[Attack, ...] = (adapter, dataset, parquet, results, archive, zipped, ending, report, spec)
BODY = {
    "model": BASE,
    "messages": [{"role": "user", "content": "a"}],
    "max_tokens": 2,
    "stream": False,
    "logprobs": True,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
}


def refusable(call: Callable[[], object]) -> None:
    """Call; a refusal in our own words is fine, and anything else is a defect."""
    said = "taken"
    try:
        call()
    except (ArtifactError, ArchiveError, OverlayError, Interrupt) as error:
        said = str(error)
    except ValidationError:
        # Whoever reads it makes a sentence of it: the API server, or the operator's endpoint.
        return
    assert said.strip()
    assert "Traceback" not in said


def cases(number: int) -> Iterator[Any]:
    for target in TARGETS:
        yield pytest.param(target, number, id=target.__name__)


def strike(target: Attack, number: int, folder: Path) -> None:
    """Run the cases of a target, each with its number as seed."""
    for seed in range(number):
        place = folder / str(seed)
        place.mkdir()
        begin = time.monotonic()
        try:
            target(random.Random(seed), place)
        except Exception as error:
            raise AssertionError(f"{target.__name__}, seed {seed}: {type(error).__name__}: {error}"[:2000]) from error
        slowest = SLOWEST_SECONDS * machine_factor()
        assert time.monotonic() - begin < slowest, f"{target.__name__}, seed {seed} is slow"
        shutil.rmtree(place)


@pytest.mark.parametrize(("target", "number"), cases(SHORT))
def test_mutated_artifact_is_taken_or_refused_in_a_sentence(target: Attack, number: int, tmp_path: Path) -> None:
    strike(target, number, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("target", "number"), cases(LONG))
def test_many_mutated_artifacts_are_taken_or_refused(target: Attack, number: int, tmp_path: Path) -> None:
    strike(target, number, tmp_path)


class Patient(FakeVllm):
    """An engine that takes everything: what is wrong then, the guard has done."""

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send_json(send, {"id": "1", "model": BASE, "choices": [], "usage": {"prompt_tokens": 1}})


@pytest.mark.parametrize("number", [SHORT * 2, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
async def test_no_body_brings_the_guard_down(tmp_path: Path, number: int) -> None:
    (tmp_path / "token").write_text("s3cret")
    engine = Patient(tmp_path / "token")
    routes = GuardRoutes(open=True, base=BASE, adapters={}, aliases={}, versions=[], pending=[])
    async with engine.served() as url, aiohttp.ClientSession() as session:
        opened = routes.model_dump(by_alias=True)
        async with session.put(url + GUARD_PATH, json=opened, headers={TOKEN_HEADER: "s3cret"}) as answer:
            assert answer.status == 200
        for seed in range(number):
            rng = random.Random(seed)
            body = mutated_json(rng, json.dumps(BODY).encode())
            kind = rng.choice(("application/json", "text/plain", ""))
            path = rng.choice(("/v1/chat/completions", "/v1/completions", "/v1/chat/completions/", "/tokenize"))
            headers = {"Content-Type": kind} if kind else {}
            limit = aiohttp.ClientTimeout(total=SLOWEST_SECONDS * machine_factor())
            async with session.post(url + path, data=body, headers=headers, timeout=limit) as answer:
                text = await answer.text()
            assert answer.status < 500, f"seed {seed}: {answer.status} {text[:200]}"
            assert "Traceback" not in text
        async with session.post(url + "/v1/chat/completions", json={**BODY, "tools": None}) as answer:
            assert answer.status == 200


DEEP = "[" * 200_000
"""Deeper than a parser of JSON goes."""


@pytest.mark.parametrize("field", ["arguments", "tools"])
def test_text_that_nests_without_end_is_named_by_its_row(tmp_path: Path, field: str) -> None:
    row = conversation(said("user", "a"), called({"function": {"name": "f", "arguments": "{}"}}))
    if field == "tools":
        row["tools"] = DEEP
    else:
        row["messages"][1]["tool_calls"][0]["function"]["arguments"] = DEEP
    path = write_rows(tmp_path / "rows.jsonl", [row])

    with pytest.raises(ArtifactError, match="row 1"):
        list(read_all([path]))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_adapter_that_nests_without_end_is_refused(tmp_path: Path, name: str) -> None:
    make_adapter(tmp_path / "a")
    deep = DEEP.encode()
    content = len(deep).to_bytes(8, "little") + deep if name.endswith("safetensors") else deep
    (tmp_path / "a" / name).write_bytes(content)

    with pytest.raises(ArtifactError, match=name):
        check_adapter(tmp_path / "a", base_fingerprint=None, max_rank=16, model_config=MODEL_CONFIG)
