"""Agents that users bring: real Harbor, the code in processes of its own as in its container, a fake model server."""

import base64
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually
from unit.agent.fake_model import FakeModel
from whetstone_agent.agents.catalog import agent_identity
from whetstone_agent.agents.own.code import require_digest
from whetstone_agent.agents.own.wire import pack, unpack
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api import source
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_agent import AgentSpec
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import TerminationReport
from whetstone_api.vocabulary import Reason

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]

CODE = """
import json, os, pathlib
from harbor.agents.base import BaseAgent
from openai import AsyncOpenAI


class Mine(BaseAgent):
    def __init__(self, *args, greeting="hello", **kwargs):
        super().__init__(*args, **kwargs)
        self.greeting = greeting

    @staticmethod
    def name():
        return "mine"

    def version(self):
        return "7"

    async def setup(self, environment):
        await environment.exec("echo ready >setup.txt")

    async def run(self, instruction, environment, context):
        reply = await AsyncOpenAI().chat.completions.create(
            model=os.environ["OPENAI_MODEL"], messages=[{"role": "user", "content": f"{self.greeting}: {instruction}"}]
        )
        self.logs_dir.joinpath("reply.txt").write_text(reply.choices[0].message.content)
        await environment.exec(f"touch {reply.choices[0].message.content}; cat setup.txt >seen.txt")
        folder = pathlib.Path(self.logs_dir) / "copied"
        folder.mkdir()
        await environment.download_file("/app/seen.txt", folder / "seen.txt")
        await environment.upload_dir(folder, "/app/back")
        found = await environment.exec("cat back/seen.txt")
        context.metadata = {"seen": found.stdout, "key": os.environ["OPENAI_API_KEY"]}


class Broken(Mine):
    async def run(self, instruction, environment, context):
        raise IndexError("no block in the reply")


class Ended(Mine):
    async def run(self, instruction, environment, context):
        os._exit(3)


class Slow(Mine):
    async def run(self, instruction, environment, context):
        self.logs_dir.joinpath("begun.txt").write_text("begun")
        await environment.exec("sleep 60")


class Thief(Mine):
    async def run(self, instruction, environment, context):
        os.symlink("/etc/hostname", self.logs_dir / "link.txt")
        stolen = {name: value for name, value in os.environ.items() if "secret-key" in value}
        self.logs_dir.joinpath("stolen.json").write_text(json.dumps(stolen))


class Nothing:
    pass
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One task."""
    from unit.agent.conftest import write_task

    write_task(tmp_path / "tasks", "task-0", file="done_0.txt")
    return tmp_path / "tasks"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "agent_of_mine.py").write_text(CODE)
    return folder


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start the host of the code; gives its process and its socket."""
    socket = tmp_path_factory.mktemp("s") / "a.sock"
    command = [sys.executable, "-m", "whetstone_agent.agents.own.host", "--socket", str(socket), "--code", str(code)]
    # As in its container: nothing of the runner's environment.
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen(command, env=environment)
    try:
        eventually(socket.exists, what="the socket of the agent")
        yield process, str(socket)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def place(host: tuple[subprocess.Popen[bytes], str]) -> str:
    """Return the socket of the code's host."""
    return host[1]


@pytest.fixture
def mine(configure: Configure, place: str, code: Path) -> Configure:
    """Configure a run of a class of the code."""

    def make(cls: str, **fields: Any) -> BenchmarkConfig:
        more = fields.pop("agent", {})
        agent = {"importPath": f"agent_of_mine:{cls}", "configMapRef": {"name": "mine"}, **more}
        return configure(agent=agent, agentPath=str(code), agentSocket=place, **fields)

    return make


class SilentReporter:
    def send(self, report: object) -> None:
        pass


async def run(config: BenchmarkConfig, environment: EnvironmentChoice) -> TerminationReport:
    return await run_benchmark(config, SilentReporter(), environment)  # type: ignore[arg-type]


def trials_of(config: BenchmarkConfig) -> list[Path]:
    return list(Path(config.output_path).glob("harbor/*/task-0__*"))


def trial_file(config: BenchmarkConfig, path: str) -> Path:
    return trials_of(config)[0] / path


def result_of(config: BenchmarkConfig) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trial_file(config, "result.json").read_text())
    return found


async def test_a_users_agent_works_with_model_and_sandbox(
    mine: Configure, local: EnvironmentChoice, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "secret-key")
    fake, url = await model(lambda messages: "done_0.txt" if messages[0]["content"].startswith("ahoy") else "no")
    config = mine("Mine", serverUrl=url, agent={"options": {"greeting": "ahoy"}})
    report = await run(config, local)
    assert report.result["results"]["mean"] == "1"
    result = result_of(config)
    assert (result["agent_info"]["name"], result["agent_info"]["version"]) == ("own", "7")
    told = result["agent_result"]
    assert told["metadata"]["agent"] == {"seen": "ready\n", "key": "none"}
    assert (told["n_input_tokens"], told["n_output_tokens"]) == (10, 3)
    assert trial_file(config, "agent/reply.txt").read_text() == "done_0.txt"
    assert fake.keys == {"Bearer secret-key"}


async def test_code_that_fails_is_scored_and_named(
    mine: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(lambda _: "no")
    for number, (name, words) in enumerate((("Broken", "IndexError: no block"), ("Ended", "the process of the agent"))):
        config = mine(name, name=f"run-{number}", serverUrl=url)
        report = await run(config, local)
        assert (report.result["results"]["void"], report.result["results"]["mean"]) == (0, "0")
        error = result_of(config)["exception_info"]
        assert error["exception_type"] == "AgentFailedError"
        assert words in error["exception_message"]


async def test_files_of_a_stopped_agent_are_kept(mine: Configure, local: EnvironmentChoice, model: StartModel) -> None:
    _, url = await model(lambda _: "no")
    config = mine("Slow", serverUrl=url, agent={"budget": {"wallClockSeconds": 1}})
    await run(config, local)
    assert result_of(config)["exception_info"]["exception_type"] == "BudgetExceededError"
    assert trial_file(config, "agent/begun.txt").read_text() == "begun"


async def test_the_code_finds_no_key_and_its_links_are_not_followed(
    mine: Configure, local: EnvironmentChoice, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "secret-key")
    _, url = await model(lambda _: "no")
    config = mine("Thief", serverUrl=url)
    await run(config, local)
    assert json.loads(trial_file(config, "agent/stolen.json").read_text()) == {}
    assert not trial_file(config, "agent/link.txt").exists()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Absent", {}, "has no attribute 'Absent'"),
        ("Nothing", {}, "no subclass of harbor.agents.base.BaseAgent"),
        ("Mine", {"logs_dir": "x"}, "multiple values"),
    ],
)
async def test_code_that_cannot_be_loaded_fails_the_run_before_any_trial(
    mine: Configure, local: EnvironmentChoice, model: StartModel, name: str, options: dict[str, str], words: str
) -> None:
    _, url = await model(lambda _: "no")
    config = mine(name, serverUrl=url, agent={"options": options})
    with pytest.raises(RunFailure) as failure:
        await run(config, local)
    assert failure.value.reason is Reason.INVALID_SPEC
    assert f"spec.agent.importPath agent_of_mine:{name}" in failure.value.message
    assert words in failure.value.message
    assert trials_of(config) == []


def test_code_is_of_the_recipe_and_its_place_is_not(code: Path, tmp_path: Path) -> None:
    def identity(folder: Path) -> dict[str, Any]:
        agent = {"importPath": "agent_of_mine:Mine", "source": {"uri": "pvc://data/code"}}
        return agent_identity(AgentSpec.model_validate(agent), str(folder))

    # As a ConfigMap is mounted: files are links into a hidden folder.
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    (mounted / "..data" / "agent_of_mine.py").write_text(CODE)
    (mounted / "agent_of_mine.py").symlink_to("..data/agent_of_mine.py")
    before = identity(code)
    assert identity(mounted) == before
    (code / "agent_of_mine.py").write_text(CODE + "\n# other")
    assert identity(code) != before


def test_an_archive_with_anything_but_files_and_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a.txt").write_text("a")
    unpack(pack(tmp_path / "from"), tmp_path / "to")
    assert (tmp_path / "to" / "a.txt").read_text() == "a"
    for member in (tarfile.TarInfo("../out.txt"), tarfile.TarInfo("link")):
        buffer = io.BytesIO()
        if member.name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "a.txt"
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.addfile(member)
        with pytest.raises(ValueError, match=r"link|out\.txt"):
            unpack(base64.b64encode(buffer.getvalue()).decode(), tmp_path / "to")


def test_code_of_a_claim_is_held_to_the_digest_that_the_spec_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "CLAIMS_ROOT", str(tmp_path))
    (tmp_path / "data" / "agent").mkdir(parents=True)
    (tmp_path / "data" / "agent" / "mine.py").write_text(CODE)

    def pinned(digest: str) -> AgentSpec:
        place = {"uri": "pvc://data/agent", "digest": digest}
        return AgentSpec.model_validate({"importPath": "mine:Mine", "source": place})

    with pytest.raises(RunFailure, match="sha256:000") as failure:
        require_digest(pinned("sha256:" + "0" * 64))
    assert failure.value.reason is Reason.DIGEST_MISMATCH
    require_digest(pinned(failure.value.message.split("the folder is ")[1].split(",")[0]))


async def test_a_run_with_other_code_than_its_digest_ends_before_any_trial(
    configure: Configure, local: EnvironmentChoice
) -> None:
    place = {"uri": "pvc://data/agent", "digest": "sha256:" + "0" * 64}
    with pytest.raises(RunFailure) as failure:
        await run(configure(agent={"importPath": "mine:Mine", "source": place}), local)
    assert failure.value.reason is Reason.DIGEST_MISMATCH


def test_host_ends_when_told_to(host: tuple[subprocess.Popen[bytes], str]) -> None:
    process, _ = host
    process.terminate()
    # Not by the signal's own doing, which the first process of a container is spared.
    assert process.wait(timeout=60) == 0
