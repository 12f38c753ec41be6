"""The real operator against a real API server: a chat template reaches the pods and follows its ConfigMap."""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "ModelServer"
ANNOTATION = "whetstone.dev/chat-template"
REF = {"chatTemplate": {"configMapRef": {"name": "chat", "key": "t"}}}


def put_map(world: World, **data: str) -> None:
    """Create the ConfigMap `chat`, or give it this data and no other."""
    found = world.api.get("ConfigMap", "chat", namespace=world.namespace)
    if found:
        world.api.replace({**found, "data": data}, namespace=world.namespace)
    else:
        chat = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat"}, "data": data}
        world.api.create(chat, namespace=world.namespace)


def touch(world: World, value: str) -> None:
    """Have the server looked at before its time."""
    note = {"metadata": {"annotations": {"example.com/touched": value}}}
    world.api.merge(KIND, "server", note, namespace=world.namespace)


def templates(world: World) -> set[Any]:
    """Return the chat templates of the engine pods."""
    return {(pod["metadata"].get("annotations") or {}).get(ANNOTATION) for pod in world.engine_pods()}


def test_inline_template_reaches_the_pods(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(engine={"chatTemplate": {"inline": "{{ a }}\n"}})
    eventually(lambda: templates(world) == {"{{ a }}\n"}, what="the template in the pod")
    engine = world.engine_pods()[0]["spec"]["containers"][0]
    assert "--chat-template=/etc/whetstone/chat-template/template.jinja" in engine["args"]
    world.start_engines()


def test_missing_map_and_key_are_named_and_waited_for(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(engine=REF)
    missing = world.wait_reason(KIND, "server", "ConfigMapNotFound")
    field = "spec.engine.chatTemplate.configMapRef"
    assert missing["message"] == (
        f"{field}.name: ConfigMap chat does not exist in namespace {world.namespace}; create it"
    )
    put_map(world, other="x")
    words = f"{field}.key: ConfigMap chat has no key t (its keys: other); add it"
    eventually(lambda: (world.condition(KIND, "server", "Ready") or {})["message"] == words, what="the missing key")
    put_map(world, t="  ")
    empty = world.wait_reason(KIND, "server", "InvalidSpec")
    assert "key t of ConfigMap chat is empty" in empty["message"]
    put_map(world, t="{{ a }}")
    touch(world, "1")
    eventually(lambda: templates(world) == {"{{ a }}"}, what="the template in the pod")
    world.wait_reason(KIND, "server", "EngineStarting")


def test_changed_map_is_a_rollout_that_names_the_template(world: World, operator: OperatorProcess) -> None:
    world.claims()
    put_map(world, t="a")
    world.serve(engine=REF)
    world.start_engines()
    put_map(world, t="b")
    touch(world, "1")
    rollout = world.wait_reason(KIND, "server", "Progressing")
    assert "engines restart for: chatTemplate sha256:ca978112 -> sha256:3e23e816" in rollout["message"]
    eventually(lambda: "b" in templates(world), what="a pod with the new template")


def test_map_that_goes_away_is_told_and_leaves_the_pods_alone(world: World, operator: OperatorProcess) -> None:
    world.claims()
    put_map(world, t="a")
    world.serve(engine=REF)
    world.start_engines()
    template = world.get("Deployment", "server-engine")["spec"]["template"]
    world.api.delete("ConfigMap", "chat", namespace=world.namespace)
    world.api.merge(KIND, "server", {"spec": {"replicas": 2}}, namespace=world.namespace)
    world.wait_reason(KIND, "server", "ConfigMapNotFound")
    eventually(lambda: len(world.engine_pods()) == 2, what="two pods")
    assert world.get("Deployment", "server-engine")["spec"]["template"] == template
