"""When a training that makes no step is taken for hung."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel


class StallSpec(ApiModel):
    """How long a step may take."""

    minutes: Annotated[int, Field(ge=1, le=10080)]
    """Minutes without a step after which the pods are started again, once."""
