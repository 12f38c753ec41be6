"""The chat template that an engine renders conversations with, where it is not the model's own."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, KeyRef, Rule

MAX_TEMPLATE_BYTES = 131072
"""Longest template: it travels in an annotation of the pods, of which Kubernetes allows 256 KiB in all."""


class ChatTemplate(ApiModel):
    """A Jinja template, in the spec or in a ConfigMap."""

    inline: Annotated[str, Field(min_length=1, max_length=32768)] | None = None
    """The template itself."""
    config_map_ref: KeyRef | None = None
    """ConfigMap and key in it that hold the template; a change of it restarts the engines."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.inline) != has(self.configMapRef)", message="give exactly one of inline and configMapRef"),
    )
