"""A chat template on its way to the engine. Pure.

It is an annotation of the pods, which Kubernetes writes into a file: so each revision of the Deployment keeps the
template that it was made with, and an engine that restarts in an old pod does not take the new one.
"""

from typing import Any

from whetstone_api.engine import EngineSpec
from whetstone_api.vocabulary import Annotation

FOLDER = "/etc/whetstone/chat-template"
FILE = "template.jinja"
VOLUME = "chat-template"


def template_options(engine: EngineSpec) -> list[str]:
    """Return the options of `vllm serve`; none where the model's own template is used."""
    return [f"--chat-template={FOLDER}/{FILE}"] if engine.chat_template else []


def template_volumes(engine: EngineSpec) -> list[dict[str, Any]]:
    """Return the volume with the file."""
    if engine.chat_template is None:
        return []
    field = {"fieldPath": f"metadata.annotations['{Annotation.CHAT_TEMPLATE}']"}
    return [{"name": VOLUME, "downwardAPI": {"items": [{"path": FILE, "fieldRef": field}]}}]


def template_mounts(engine: EngineSpec) -> list[dict[str, Any]]:
    """Return the mount of the file, for the engine's container."""
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}] if engine.chat_template else []


def template_annotations(text: str | None) -> dict[str, str]:
    """Return the annotation with the text."""
    return {} if text is None else {str(Annotation.CHAT_TEMPLATE): text}
