"""An engine on the node renders conversations with the template that its server names."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.loop import READY_SECONDS, Seeded, server_example
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME = "templated"
TEMPLATE = "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}[answer] "
RENDERED = "[user] list files\n[answer] "
CONVERSATION = [{"role": "user", "content": "list files"}]


@pytest.fixture
def server(seeded: Seeded) -> Iterator[Seeded]:
    """A server of the base model whose template lies in a ConfigMap."""
    chat = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat"}, "data": {"t.jinja": TEMPLATE}}
    seeded.kube.apply(chat, namespace=seeded.namespace)
    spec = server_example()
    spec["engine"]["chatTemplate"] = {"configMapRef": {"name": "chat", "key": "t.jinja"}}
    seeded.apply("ModelServer", NAME, {name: spec[name] for name in ("model", "engine", "resources")})
    yield seeded
    seeded.delete("ModelServer", NAME)
    eventually(lambda: not seeded.pods("model-server", NAME), what="its pods gone", seconds=150)


def tokens(server: Seeded, **request: Any) -> list[int]:
    """Return what the engine makes of a request to /tokenize."""
    client = server.kube.openai(namespace=server.namespace, service=NAME)
    root = str(client.base_url).removesuffix("/v1/")
    answer = client.with_options(base_url=root, max_retries=0).post(
        "/tokenize", cast_to=httpx.Response, body={"model": plan.MODEL, **request}
    )
    found: list[int] = answer.json()["tokens"]
    return found


def test_engine_renders_with_the_template_of_the_config_map(server: Seeded) -> None:
    eventually(lambda: is_true(server.get("ModelServer", NAME), "Ready"), what="Ready", seconds=READY_SECONDS)
    assert tokens(server, messages=CONVERSATION) == tokens(server, prompt=RENDERED, add_special_tokens=False)
    client = server.kube.openai(namespace=server.namespace, service=NAME)
    answer = client.chat.completions.create(model=plan.MODEL, messages=CONVERSATION, max_tokens=1)  # type: ignore[arg-type]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokens(server, prompt=RENDERED, add_special_tokens=False))
