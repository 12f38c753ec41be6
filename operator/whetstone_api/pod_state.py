"""Protocol between operator, sidecar and guard of a server's pod.

Operator to sidecar, port 8001, header `TOKEN_HEADER`:
    PUT /v1/desired   body `DesiredState`; answer `PodState`. Only a revision above the held one replaces it.
    GET /v1/state     answer `PodState`, read from the engine.
    GET /readyz       200 once the engine is healthy, its base is not wrong, the startup adapters are settled and the
                      guard is open.
    GET /metrics      Prometheus.
At its start the sidecar reads the same `DesiredState` from a mounted ConfigMap, so a new pod needs no operator.

Sidecar to guard (in the engine's process, port 8000), header `TOKEN_HEADER`:
    PUT /whetstone/guard   body `GuardRoutes`; answer `GuardState`.
    GET /whetstone/guard   answer `GuardState`.
    POST /whetstone/guard/quiet   body `{"seconds": n}`; clients wait for so long, 0 lets them go on. A request with
                                  `ALONE_HEADER` is taken within that time only, and clients wait for its answer.
    POST /whetstone/guard/stall   body `{"seconds": n}`; the engine's health check fails for so long, 0 ends that.
Hooks of a pod that is told to go, to its guard:
    POST /whetstone/guard/drain   from now on each answer closes its connection; answer `{draining, quietSeconds}`.
The guard starts closed: every inference request gets 503 until routes with `open: true` arrive.
"""

from enum import StrEnum

from pydantic import Field

from whetstone_api.model_facts import ModelFacts
from whetstone_api.wire import WireModel

ENGINE_PORT = 8000
SIDECAR_PORT = 8001
DESIRED_FILE = "desired.json"
GUARD_PATH = "/whetstone/guard"
DRAIN_PATH = "/whetstone/guard/drain"
QUIET_PATH = "/whetstone/guard/quiet"
STALL_PATH = "/whetstone/guard/stall"


class DesiredAdapter(WireModel):
    """One adapter version that a pod should hold."""

    name: str
    served_name: str
    digest: str
    source: str
    """URI, for messages."""
    path: str
    """Folder inside the sidecar (a mounted store); empty for a place that it must fetch from."""
    field: str | None = None
    """Of a place to fetch from: where the server's spec names it, for messages."""
    secret: str | None = None
    """Secret that the place asks for."""
    required: bool = False


class AliasShare(WireModel):
    """One target of an alias with several."""

    adapter: str
    """Its name in the spec. Sessions are dealt out by it, so that a new version keeps the sessions of the old."""
    served_name: str
    """Version, or base, that answers."""
    weight: int
    """Its part of the requests, in proportion to the others."""


class DesiredState(WireModel):
    """All that a pod should hold."""

    server: str
    revision: int
    """Rises with every change of the content."""
    base_name: str
    """Served name of the base model."""
    model_path: str
    """Folder of the base model inside the sidecar."""
    max_rank: int
    """Highest rank that pods load at all; a pod whose engine takes less refuses more."""
    dtype: str
    """Engine's precision: auto, float32, bfloat16 or float16; of quantized weights, the method (`fp8`)."""
    adapters: list[DesiredAdapter] = Field(default_factory=list)
    """Of several versions under one name, the bare name serves the first; the others are held for aliases."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """Served name (version or base) by alias with one target."""
    splits: dict[str, list[AliasShare]] = Field(default_factory=dict)
    """Targets by alias with several."""
    sampling: dict[str, int | float] = Field(default_factory=dict)
    """Sampling for requests that leave it out, by field of the request."""


class Effect(StrEnum):
    """Verdict of the effect probe on a loaded adapter."""

    PENDING = "Pending"
    VERIFIED = "Verified"
    CHANGED = "Changed"
    """The output changes; the adapter brings no record to compare with."""
    NO_EFFECT = "NoEffect"
    DIVERGENT = "Divergent"
    UNKNOWN = "Unknown"
    """The recorded effect is below ten times the noise, or was recorded in another precision."""

    @property
    def effective(self) -> bool:
        """Whether requests may be sent to the adapter as a version that counts."""
        return self in (Effect.VERIFIED, Effect.CHANGED, Effect.UNKNOWN)


class TemplateState(WireModel):
    """Whether the engine's chat template reads conversations as an adapter was trained on: True, False or Unknown."""

    status: str = "Unknown"
    message: str = "no conversation was recorded"


class AdapterState(WireModel):
    """One adapter version in one pod."""

    name: str
    served_name: str
    digest: str
    rank: int | None = None
    """Its rank, once its files are there."""
    loaded: bool = False
    """The engine lists it now."""
    effect: Effect = Effect.PENDING
    reason: str = ""
    """A `Reason`; empty while nothing is wrong."""
    message: str = ""
    template: TemplateState = TemplateState()
    load_seconds: float | None = None
    probe_seconds: float | None = None


class BaseState(WireModel):
    """Verdict on the base model of one pod: True, False or Unknown, as a condition."""

    status: str = "Unknown"
    reason: str = "NotRecorded"
    message: str = "no probe of this base model is at hand"


class PodState(WireModel):
    """What a pod holds, read from its engine."""

    revision: int
    """Revision of the desired state that this answers to."""
    settled: bool
    """Nothing more will change without a new desired state or a new engine."""
    engine_healthy: bool
    engine_stalled: bool = False
    """It says that it is healthy, takes requests and generates nothing; then it does not count as healthy."""
    open: bool
    """The guard lets requests through."""
    engine_boot: str = ""
    """Identity of the engine's process; another one has forgotten all adapters."""
    base: BaseState = BaseState()
    model: ModelFacts | None = None
    """Sizes of the base model; None where its folder does not say them."""
    adapters: list[AdapterState] = Field(default_factory=list)
    aliases: dict[str, str] = Field(default_factory=dict)
    """Routes that the guard holds now."""


class GuardRoutes(WireModel):
    """What the guard lets through and how names resolve."""

    open: bool
    base: str
    """Served name of the base model."""
    adapters: dict[str, str] = Field(default_factory=dict)
    """Served version by bare adapter name."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """Served version, or base, by alias with one target."""
    splits: dict[str, list[AliasShare]] = Field(default_factory=dict)
    """Targets by alias with several. A target that is neither the base nor one of `versions` is answered with 503."""
    sampling: dict[str, int | float] = Field(default_factory=dict)
    """Sampling for requests that leave it out, by field of the request."""
    versions: list[str] = Field(default_factory=list)
    """Versions that clients may name themselves: loaded and probed."""
    pending: list[str] = Field(default_factory=list)
    """Names whose version this pod does not hold yet: answered with 503, so that the client tries another pod."""


class GuardState(WireModel):
    """What the guard holds."""

    boot: str
    """Random identity of the engine's process."""
    routes: GuardRoutes
    in_flight: dict[str, int] = Field(default_factory=dict)
    """Requests being answered now, by served name."""
