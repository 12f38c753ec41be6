"""Base classes and field types of the resource models.

The models are the only source of the CRDs (`whetstone_api.crdgen`): a docstring becomes a description, a bound a
bound, a `Rule` a CEL validation. Reading is lenient (`extra="ignore"`), so that an operator one version behind does
not crash on a newer field; the API server prunes and refuses unknown fields before that.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from whetstone_api.vocabulary import MAX_SERVED_NAME


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A CEL validation of a CRD node.

    Args:
        rule: CEL expression over `self` (and `oldSelf` in a transition rule).
        message: What the user reads; it says the fix.
    """

    rule: str
    message: str


class ApiModel(BaseModel):
    """A node of a resource: camelCase outside, snake_case inside, immutable once read."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    """CEL validations of this node."""

    def to_wire(self) -> dict[str, Any]:
        """Return the node as the API server stores it: camelCase, without absent fields."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class RunToEndSpec(ApiModel):
    """A spec that cannot change once written, except for the fields in `mutable` and `until_success`."""

    mutable: ClassVar[frozenset[str]] = frozenset()
    """camelCase names of the fields that may change."""
    until_success: ClassVar[frozenset[str]] = frozenset()
    """camelCase names of optional fields that may change until the object is Complete: none decides what comes out."""


DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
ServedName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_SERVED_NAME, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"),
]
"""A name that clients put into `model`: base, adapter or alias."""
ObjectName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
"""Name of another object in the same namespace."""
SecretName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
"""Name of a Secret: a DNS subdomain."""
QueueName = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
"""Name of a queue: a DNS subdomain that fits a label."""
VolumeName = Annotated[str, Field(min_length=1, max_length=40, pattern=DNS_LABEL)]
DecimalString = Annotated[str, Field(max_length=24, pattern=r"^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$")]
"""A non-negative decimal as text: the API conventions allow no floats in a spec."""
SignedDecimalString = Annotated[str, Field(max_length=24, pattern=r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$")]
QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
Quantity = int | Annotated[str, Field(max_length=32, pattern=QUANTITY)]
"""A Kubernetes quantity (`500m`, `4Gi`, `1`)."""


class LocalRef(ApiModel):
    """A reference to an object of the same namespace."""

    name: ObjectName
    """Name of the object."""


class KeyRef(ApiModel):
    """A reference to one key of a ConfigMap of the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in it."""


class Resources(ApiModel):
    """Compute resources of a container, as in a pod's spec."""

    requests: Annotated[dict[str, Quantity], Field(max_length=16)] | None = None
    """What the scheduler reserves."""
    limits: Annotated[dict[str, Quantity], Field(max_length=16)] | None = None
    """What the container may use at most."""


class Condition(ApiModel):
    """A condition as `metav1.Condition` has it."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition, CamelCase."""
    status: Annotated[str, Field(max_length=16)]
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """Machine-readable cause, CamelCase."""
    message: Annotated[str, Field(max_length=32768)]
    """Sentence for people."""
    last_transition_time: Annotated[str, Field(max_length=64)]
    """When the status last changed, RFC 3339."""
    observed_generation: int | None = None
    """The generation that this condition was decided for."""


NOT_OBSERVED = -1
"""`status.observedGeneration` of an object that no operator has looked at; kstatus calls one without status current."""


class Status(ApiModel):
    """What the status of every kind starts with."""

    conditions: Annotated[list[Condition], Field(max_length=32)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """What is true of the object now, one entry a type."""
    observed_generation: int | None = None
    """The generation that this status was decided for; -1 before the operator has looked at the object."""

    def is_true(self, condition: str) -> bool:
        """Return whether a condition of this type is True."""
        return any(item.type == condition and item.status == "True" for item in self.conditions or [])


class ObjectMeta(ApiModel):
    """The part of an object's metadata that the operator reads."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 1
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PrinterColumn(ApiModel):
    """A column of `kubectl get`."""

    name: str
    type: str = "string"
    json_path: str
    priority: int = 0
    description: str = ""


class Resource(ApiModel):
    """A whole object of one of our kinds. Subclasses add `spec` and `status`."""

    kind_name: ClassVar[str]
    plural: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]]
    columns: ClassVar[tuple[PrinterColumn, ...]] = ()
    scale: ClassVar[dict[str, str] | None] = None
    """The scale subresource's paths, for kinds that have one."""

    metadata: ObjectMeta


def condition_column(
    *, condition: str, field: str = "status", name: str | None = None, priority: int = 0
) -> PrinterColumn:
    """Return a printer column that shows one field of one condition."""
    path = f".status.conditions[?(@.type=='{condition}')].{field}"
    return PrinterColumn(name=name or condition, json_path=path, priority=priority)
