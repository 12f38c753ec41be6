"""The fake engine of the unit tests answers as the real one: same requests, same statuses, same shapes."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from anyio.from_thread import start_blocking_portal
from support import engine_routes
from support.adapters import make_adapter
from support.fake_vllm import BASE, FakeVllm
from support.loop import Loop
from support.waiting import eventually
from whetstone_api.vocabulary import TOKEN_HEADER
from whetstone_dev.demo import plan
from whetstone_server.engine import PROGRESS

pytestmark = pytest.mark.cluster
OURS = "contract--00000000"
NOWHERE = "/nowhere"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CHAT = {"messages": [{"role": "user", "content": "ls"}], "max_tokens": 1, "temperature": 0}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine to compare.

    Args:
        send: Sends method, path and JSON body with the operator's token.
        base: Served name of its base model.
        adapter: Served name of an adapter that it holds.
        folder: Folder of that adapter, as the engine sees it.
    """

    send: Callable[[str, str, dict[str, Any] | None], httpx.Response]
    base: str
    adapter: str
    folder: str

    def get(self, path: str) -> httpx.Response:
        """Send a GET."""
        return self.send("GET", path, None)

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Send a POST."""
        return self.send("POST", path, body)

    def words(self, response: httpx.Response) -> tuple[int, Any]:
        """Return status and body, parsed where it says that it is JSON, without the names in which engines differ."""
        text = response.text.replace(self.folder, "FOLDER").replace(self.adapter, "ADAPTER").replace(self.base, "BASE")
        is_json = response.headers.get("content-type") == "application/json"
        return response.status_code, json.loads(text) if is_json else text


@pytest.fixture(scope="module")
def real(loop: Loop) -> Engine:
    """The engine of the finished loop, with the adapter that it promoted."""
    secret = loop.kube.get("v1", "Secret", name=f"{plan.SERVER}-access", namespace=loop.namespace)
    assert secret is not None
    client = loop.kube.openai(namespace=loop.namespace, service=plan.SERVER)
    token = base64.b64decode(secret["data"]["token"]).decode()
    root = str(client.base_url).removesuffix("/v1/")
    client = client.with_options(base_url=root, max_retries=0, default_headers={TOKEN_HEADER: token})

    def send(method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            if method == "GET":
                return client.get(path, cast_to=httpx.Response)
            return client.post(path, cast_to=httpx.Response, body=body)
        except openai.APIStatusError as error:
            return error.response

    cards = send("GET", "/v1/models", None).json()["data"]
    adapter = next(card for card in cards if card["id"].startswith(f"{plan.ADAPTER}--"))
    return Engine(send=send, base=adapter["parent"], adapter=adapter["id"], folder=adapter["root"])


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The fake engine, behind the guard, with one adapter."""
    folder: Path = tmp_path_factory.mktemp("fake")
    (folder / "token").write_text("s3cret")
    make_adapter(folder / "adapter")
    vllm = FakeVllm(folder / "token")
    vllm.adapters["sql--0123abcd"] = str(folder / "adapter")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(vllm.served()) as url,
        httpx.Client(base_url=url, headers={TOKEN_HEADER: "s3cret"}) as client,
    ):
        yield Engine(
            send=lambda method, path, body: client.request(method, path, json=body),
            base=BASE,
            adapter="sql--0123abcd",
            folder=str(folder / "adapter"),
        )


def departures(fake: Any, real: Any, at: str = "") -> list[str]:
    """Return where the fake's JSON has what the real one has not, or has it in another type."""
    if isinstance(fake, dict) and isinstance(real, dict):
        return [
            entry
            for key, value in fake.items()
            for entry in (departures(value, real[key], f"{at}.{key}") if key in real else [f"{at}.{key}: absent"])
        ]
    if isinstance(fake, list) and isinstance(real, list):
        return departures(fake[0], real[0], f"{at}[0]") if fake and real else []
    kinds = [type(value).__name__.replace("float", "int") for value in (fake, real)]
    return [] if kinds[0] == kinds[1] else [f"{at}: {kinds[0]}, really {kinds[1]}"]


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the server-sent events of a whole stream; its end is asserted."""
    *lines, end = [line for line in response.text.split("\n\n") if line]
    assert end == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def life(engine: Engine) -> list[tuple[int, Any]]:
    """Load and unload an adapter, rightly and wrongly, under a name that no object wants."""
    # Spelled otherwise than the sidecar's folders, which it removes together with their adapters.
    folder = f"{engine.folder}/../{Path(engine.folder).name}"
    answers = [
        engine.post("/v1/load_lora_adapter", lora_name=OURS, lora_path=NOWHERE),
        engine.post("/v1/load_lora_adapter", lora_name=engine.base, lora_path=folder),
        engine.post("/v1/load_lora_adapter", lora_name="", lora_path=folder),
        engine.post("/v1/load_lora_adapter", lora_name=OURS, lora_path=folder),
        engine.post("/v1/load_lora_adapter", lora_name=OURS, lora_path=folder),
        engine.post("/v1/unload_lora_adapter", lora_name=OURS),
        engine.post("/v1/unload_lora_adapter", lora_name=OURS),
    ]
    return [engine.words(answer) for answer in answers]


def test_adapters_load_and_unload_with_the_same_words(fake: Engine, real: Engine) -> None:
    expected = life(fake)
    assert [status for status, _ in expected] == [404, 400, 400, 200, 400, 200, 404]

    def alike() -> bool:
        # The real pod's sidecar unloads what nobody wants, maybe between two of our requests; then we try again.
        assert life(real) == expected
        return True

    eventually(alike, what="the same answers")


def test_engines_list_models_with_root_and_parent(fake: Engine, real: Engine) -> None:
    for engine in (fake, real):
        cards = {card["id"]: card for card in engine.get("/v1/models").json()["data"]}
        assert cards[engine.base]["parent"] is None
        assert (cards[engine.adapter]["root"], cards[engine.adapter]["parent"]) == (engine.folder, engine.base)
    assert departures(fake.get("/v1/models").json(), real.get("/v1/models").json()) == []


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_unknown_model_is_refused_alike(fake: Engine, real: Engine, path: str) -> None:
    request = {"model": "nobody", **({"prompt": "x"} if path == "/v1/completions" else CHAT)}
    answers = [engine.words(engine.post(path, **request)) for engine in (fake, real)]
    assert answers[0] == answers[1]
    assert answers[1][0] == 404


def test_every_route_of_the_engine_was_decided_about(real: Engine) -> None:
    table = {(method, path) for method, path in real.get("/whetstone/guard/routes").json()}
    decided = engine_routes.ALLOWED | set(engine_routes.REFUSED)
    assert table - decided == set(), "decide about the engine's new routes in tests/support/engine_routes.py"
    assert decided - table == set(), "the engine no longer has these; take them out of the table"


def test_health_and_unknown_routes_are_answered_alike(fake: Engine, real: Engine) -> None:
    for path in ("/health", "/v1/nothing"):
        assert fake.words(fake.get(path)) == real.words(real.get(path))


def prompt_entries(engine: Engine, model: str) -> list[dict[str, Any]]:
    """Return the entry of each token but the first, as the sidecar's probe asks an engine that must be alone."""
    tokens = engine.post("/tokenize", model=engine.base, prompt="Run ls -l").json()["tokens"]
    request = {"model": model, "prompt": [tokens], "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}
    engine.post("/whetstone/guard/quiet", seconds=20)
    [choice] = engine.post("/v1/completions", **request).json()["choices"]
    engine.post("/whetstone/guard/quiet", seconds=0)
    first, *others = choice["prompt_logprobs"]
    assert first is None
    return [entry[str(token)] for token, entry in zip(tokens[1:], others, strict=True)]


def test_engine_on_a_cpu_says_that_probes_need_it_alone(real: Engine) -> None:
    assert real.post("/whetstone/guard/quiet", seconds=0).json() == {"needed": True, "inFlight": 0}


def test_prompt_logprobs_have_one_entry_for_each_token(fake: Engine, real: Engine) -> None:
    assert departures(prompt_entries(fake, fake.base), prompt_entries(real, real.base)) == []


def test_adapter_changes_log_probabilities_and_the_base_repeats_itself(fake: Engine, real: Engine) -> None:
    for engine in (fake, real):
        models = (engine.base, engine.base, engine.adapter)
        first, again, adapter = ([entry["logprob"] for entry in prompt_entries(engine, model)] for model in models)
        assert again == pytest.approx(first, abs=1e-3)
        assert adapter != pytest.approx(first, abs=1e-3)


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/completions", {"prompt": "ls", "max_tokens": 1}),
        ("/v1/chat/completions", CHAT),
        ("/tokenize", {"prompt": "ls"}),
        ("/tokenize", {"messages": CHAT["messages"], "add_generation_prompt": True}),
    ],
    ids=["completion", "chat", "tokenize", "tokenize a conversation"],
)
def test_answers_have_the_same_shape(fake: Engine, real: Engine, path: str, request_: dict[str, Any]) -> None:
    answers = [engine.post(path, model=engine.base, **request_) for engine in (fake, real)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert departures(*(answer.json() for answer in answers)) == []


def test_series_of_progress_move_with_every_answer(fake: Engine, real: Engine) -> None:
    for engine in (fake, real):
        before = PROGRESS.findall(engine.get("/metrics").text)
        assert before
        engine.post("/v1/completions", model=engine.base, prompt="ls", max_tokens=1)
        eventually(
            lambda asked=engine, old=before: PROGRESS.findall(asked.get("/metrics").text) != old,
            what="a series moves",
        )


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_streams_have_the_same_events(fake: Engine, real: Engine, path: str) -> None:
    request = {**STREAM, **({"prompt": "ls", "max_tokens": 1} if path == "/v1/completions" else CHAT)}
    answers = [engine.post(path, model=engine.base, **request) for engine in (fake, real)]
    assert answers[0].headers["content-type"] == answers[1].headers["content-type"]
    pretended, truth = (events(answer) for answer in answers)
    for place in (0, -1):
        assert departures(pretended[place], truth[place]) == []
    assert pretended[-1]["choices"] == truth[-1]["choices"] == []
