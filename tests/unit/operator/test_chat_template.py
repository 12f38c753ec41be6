"""A chat template reaches the engine as a file of the revision that it belongs to."""

from typing import Any

from unit.operator.objects import SETTINGS, model_server
from whetstone_operator.controllers.rollout import restart_causes
from whetstone_operator.resources.modelserver import build_template

REF = {"configMapRef": {"name": "chat", "key": "t"}}
ANNOTATION = "whetstone.dev/chat-template"


def template(text: str | None, **engine: Any) -> dict[str, Any]:
    return build_template(model_server(engine=engine), SETTINGS, chat_template=text)


def engine_of(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["containers"][0]
    return found


def test_the_engine_is_told_of_the_file_that_holds_the_text() -> None:
    made = template("{{ messages }}", chatTemplate=REF)
    engine, volumes = engine_of(made["spec"]), {one["name"]: one for one in made["spec"]["volumes"]}
    path = next(one for one in engine["args"] if one.startswith("--chat-template=")).partition("=")[2]
    mount = next(one for one in engine["volumeMounts"] if path.startswith(f"{one['mountPath']}/"))
    [item] = volumes[mount["name"]]["downwardAPI"]["items"]
    assert path == f"{mount['mountPath']}/{item['path']}"
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{ANNOTATION}']"
    assert made["metadata"]["annotations"][ANNOTATION] == "{{ messages }}"


def test_without_the_field_the_model_s_own_template_is_used() -> None:
    made = template(None)
    assert not any("chat-template" in one for one in engine_of(made["spec"])["args"])
    assert not any(one["name"] == "chat-template" for one in made["spec"]["volumes"])


def test_another_text_is_a_restart_that_names_both_digests() -> None:
    old, new = template("a", chatTemplate=REF), template("b", chatTemplate=REF)
    assert restart_causes([old], new) == ["chatTemplate sha256:ca978112 -> sha256:3e23e816"]
    assert restart_causes([template(None)], new)[0] == "chatTemplate none -> sha256:3e23e816"


def test_users_overlay_stands_beside_the_template() -> None:
    server = model_server(engine={"chatTemplate": REF}, podTemplate={"metadata": {"annotations": {"a": "b"}}})
    annotations = build_template(server, SETTINGS, chat_template="x")["metadata"]["annotations"]
    assert (annotations["a"], annotations[ANNOTATION]) == ("b", "x")
