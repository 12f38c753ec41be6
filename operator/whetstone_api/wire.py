"""Base class of everything that travels as JSON between our own processes or lies in an artifact."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """A message or a file: camelCase JSON, unknown fields ignored (the other side may be newer)."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    def to_json(self) -> str:
        """Return the message as compact JSON without absent fields."""
        return self.model_dump_json(by_alias=True, exclude_none=True)
