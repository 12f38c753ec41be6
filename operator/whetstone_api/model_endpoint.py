"""A model behind an OpenAI-compatible API, by reference."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.access import SecretKeyRef
from whetstone_api.schema import ApiModel, LocalRef, Rule

WebUrl = Annotated[str, Field(max_length=512, pattern=r"^https?://[^\s/]+(/[^\s]*)?$")]


class ModelEndpoint(ApiModel):
    """A model of a ModelServer, or of any OpenAI-compatible API."""

    model_server_ref: LocalRef | None = None
    """A ModelServer of the namespace."""
    url: WebUrl | None = None
    """Instead: base URL of an OpenAI-compatible API, as a rule ending in `/v1`."""
    secret_ref: SecretKeyRef | None = None
    """Key of a Secret with what `url` asks for, sent as bearer."""
    model: Annotated[str, Field(min_length=1, max_length=253)]
    """Model to ask for: of a ModelServer, its base, an adapter or an alias."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.modelServerRef) != has(self.url)", message="give exactly one of modelServerRef and url"),
        Rule(
            rule="!has(self.secretRef) || has(self.url)",
            message="secretRef belongs to url; a ModelServer needs none",
        ),
    )

    def base_url(self, namespace: str) -> str:
        """Return the base URL of its API.

        Args:
            namespace: Where the ModelServer is.
        """
        if self.model_server_ref is not None:
            return f"http://{self.model_server_ref.name}.{namespace}.svc/v1"
        return self.url or ""
