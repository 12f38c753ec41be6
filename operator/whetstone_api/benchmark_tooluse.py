"""Questions that are answered by calling tools, as the suite of a BenchmarkRun."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.access import SecretKeyRef
from whetstone_api.model_endpoint import ModelEndpoint, WebUrl
from whetstone_api.schema import ApiModel, KeyRef, Rule
from whetstone_api.source import FolderSource
from whetstone_api.vocabulary import CONFIGMAPS_ROOT

API_KEY_VARIABLE = "WHETSTONE_TOOL_API_KEY"
"""The runner's variable with the key of the API that tools call."""
SCORER_KEY_VARIABLE = "WHETSTONE_SCORER_KEY"
"""The runner's variable with the key of the model that compares answers."""
RETRIEVER_KEY_VARIABLE = "WHETSTONE_RETRIEVER_KEY"
"""The runner's variable with what Elasticsearch asks for."""
OVERSEER_KEY_VARIABLE = "WHETSTONE_OVERSEER_KEY"
"""The runner's variable with the key of the overseer."""
WITNESS_KEY_VARIABLE = "WHETSTONE_WITNESS_KEY"
"""The runner's variable with the key of the expert's witness."""
KEY_VARIABLES = (
    API_KEY_VARIABLE,
    SCORER_KEY_VARIABLE,
    RETRIEVER_KEY_VARIABLE,
    OVERSEER_KEY_VARIABLE,
    WITNESS_KEY_VARIABLE,
)
"""All of them: what must not be written down."""


class InstanceOrder(StrEnum):
    """Which source the trajectory of an instance begins with."""

    RAG_BEFORE_API = "RagBeforeApi"
    """A search, then the API."""
    API_BEFORE_RAG = "ApiBeforeRag"
    """The API, then a search."""


class InstanceFilter(ApiModel):
    """Which instances to run."""

    file: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.json$")]
    """File of instances in the environment's folder."""
    include: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(min_length=1, max_length=1000)]
        | None
    ) = None
    """Glob patterns of their ids; all when absent."""
    order: InstanceOrder | None = None
    """Only those whose trajectory begins with this source."""
    limit: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Only the first so many that are left, in the order of the file."""


class ToolMode(StrEnum):
    """Granularity of an API's tools."""

    REST = "Rest"
    """A tool for each operation."""
    SLOT_FILLING = "SlotFilling"
    """Few general tools with many arguments."""
    SELECTION = "Selection"
    """Many specific tools."""


class TopKBy(StrEnum):
    """Who says how many documents a search gives."""

    CONFIGURATION = "Configuration"
    """`topK`."""
    AGENT = "Agent"
    """The agent, by an argument of the search."""


class ToolsSpec(ApiModel):
    """How tools are offered."""

    mode: ToolMode = ToolMode.REST
    """Granularity of the API's tools."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 3
    """Documents that a search gives; where the agent may say it, those that it gets without."""
    top_k_by: TopKBy = TopKBy.CONFIGURATION
    """Who says how many documents a search gives."""
    largest_top_k: Annotated[int, Field(ge=1, le=100)] = 10
    """Most documents that an agent may ask for."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.topKBy != 'Agent' || self.topK <= self.largestTopK",
            message="topK is above largestTopK; raise largestTopK",
        ),
    )


class ElasticsearchSpec(ApiModel):
    """An Elasticsearch with an index for each collection of the environment, its fields `title` and `text`."""

    url: WebUrl
    """Its base URL."""
    secret_ref: SecretKeyRef | None = None
    """Key of a Secret with the whole header `Authorization`, such as `ApiKey …` or `Basic …`."""
    authority: KeyRef | None = None
    """Key of a ConfigMap with the certificate authority, PEM; those of the runner's image when absent."""
    index_prefix: Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9][a-z0-9._-]*$")] | None = None
    """Stands before a collection's name in that of its index."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 30
    """Longest time of one search."""

    @property
    def authority_path(self) -> str | None:
        """The certificate authority inside a container that mounts it."""
        return f"{CONFIGMAPS_ROOT}/{self.authority.name}/{self.authority.key}" if self.authority is not None else None


class RetrieverSpec(ApiModel):
    """Who searches documents."""

    elasticsearch: ElasticsearchSpec
    """An Elasticsearch."""


class ToolApi(ApiModel):
    """Where the environment's API is called."""

    url: WebUrl | None = None
    """Its base URL; the first server of its OpenAPI document when absent."""
    secret_ref: SecretKeyRef | None = None
    """Key of a Secret with what it asks for."""
    header: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")] = "Authorization"
    """Header that carries the key: in `Authorization` as bearer, in any other as it is."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 30
    """Longest time of one call."""


class ScorerKind(StrEnum):
    """How an answer is compared with those accepted."""

    EXACT = "Exact"
    """To the character."""
    NORMALIZED = "Normalized"
    """Without case, punctuation and articles; numbers by their value."""
    JUDGE = "Judge"
    """By a model."""


class ScorerSpec(ApiModel):
    """Who says whether an answer is right."""

    kind: ScorerKind = ScorerKind.NORMALIZED
    """How it is compared with those accepted."""
    judge: ModelEndpoint | None = None
    """The model of `Judge`."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.judge) == (self.kind == 'Judge')", message="kind Judge and judge go together"),
    )


class ExpertMode(StrEnum):
    """When the expert, who knows the trajectory, acts in the model's place."""

    NONE = "None"
    """Never."""
    GROUND_TRUTH = "GroundTruth"
    """At every step."""
    RANDOM = "Random"
    """With the probability `epsilon`."""
    INFORMED = "Informed"
    """Where the model gets nowhere."""


Probability = Annotated[str, Field(max_length=8, pattern=r"^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$")]
"""A decimal from 0 to 1 as text."""


class ExpertSpec(ApiModel):
    """When the expert acts, and what is kept for learning."""

    mode: ExpertMode = ExpertMode.NONE
    """When it acts."""
    epsilon: Probability = "0.5"
    """Probability that it acts, with `Random`."""
    initial_limit: Annotated[int, Field(ge=0, le=1000)] = 2
    """Steps that the model acts unaided at first, with `Informed`."""
    recent_limit: Annotated[int, Field(ge=1, le=1000)] = 2
    """Latest steps that are looked at, with `Informed`: where none of them got anywhere, the expert acts."""
    alternates: bool = False
    """Whether the action of the one who does not act is kept too, at every step."""
    branches: Annotated[int, Field(ge=0, le=100)] = 0
    """Steps of a trial at most from which the other way is gone to its end too."""
    witness: ModelEndpoint | None = None
    """A model that sees what calls beside the trajectory gave, and says where the next call of it is spared by that."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.mode != 'None' || (!self.alternates && self.branches == 0)",
            message="alternates and branches need an expert; set mode",
        ),
        Rule(rule="self.branches == 0 || self.alternates", message="branches need alternates: true"),
        Rule(
            rule="!has(self.witness) || self.mode in ['Random', 'Informed']",
            message="a witness sees the model's steps; set mode Random or Informed, or leave witness out",
        ),
    )

    @property
    def assists(self) -> bool:
        """Whether it may act, so that a run is no score of the model."""
        return self.mode is not ExpertMode.NONE

    @property
    def asks_model(self) -> bool:
        """Whether the model is asked for anything."""
        return self.mode is not ExpertMode.GROUND_TRUTH or self.alternates


class ToolProtocol(StrEnum):
    """How the model calls tools."""

    NATIVE = "Native"
    """By its own chat template."""
    TEXT = "Text"
    """By JSON in its replies, for models whose template knows no tools."""


class ToolUseSuite(ApiModel):
    """Questions that are answered by calling tools."""

    environment: FolderSource
    """Folder with `collections/`, `openapi.yaml` and files of instances; every pod of the run fetches one that is not
    in a claim."""
    instances: InstanceFilter
    """Which instances to run."""
    horizon: Annotated[int, Field(ge=1, le=1000)] = 10
    """Steps of a trial at most."""
    protocol: ToolProtocol = ToolProtocol.NATIVE
    """How the model calls tools."""
    tools: ToolsSpec = ToolsSpec()
    """How tools are offered."""
    retriever: RetrieverSpec | None = None
    """Who searches documents; the runner itself, by BM25, when absent."""
    api: ToolApi = ToolApi()
    """Where the environment's API is called."""
    scorer: ScorerSpec = ScorerSpec()
    """Who says whether an answer is right."""
    overseer: ModelEndpoint | None = None
    """A model that is asked after each step, and ends trials that will lead nowhere; none when absent."""
    expert: ExpertSpec = ExpertSpec()
    """When an expert helps; a run that it helps in is no score of the model."""
    repeated_actions: Annotated[int, Field(ge=2, le=1000)] = 3
    """The same action that often in a row ends a trial."""
    observation_characters: Annotated[int, Field(ge=1, le=1000000)] = 4000
    """Characters of a tool's result that the model is shown."""

    @property
    def authority(self) -> KeyRef | None:
        """The ConfigMap with Elasticsearch's certificate authority."""
        return self.retriever.elasticsearch.authority if self.retriever is not None else None

    @property
    def secrets(self) -> dict[str, SecretKeyRef]:
        """Keys that it needs, by the field that names them."""
        judge, overseer, witness = self.scorer.judge, self.overseer, self.expert.witness
        search = self.retriever.elasticsearch if self.retriever is not None else None
        named = {
            "api": self.api.secret_ref,
            "retriever.elasticsearch": search.secret_ref if search is not None else None,
            "scorer.judge": judge.secret_ref if judge is not None else None,
            "overseer": overseer.secret_ref if overseer is not None else None,
            "expert.witness": witness.secret_ref if witness is not None else None,
        }
        return {f"spec.suite.toolUse.{name}.secretRef": one for name, one in named.items() if one is not None}


_MEANINGLESS = (
    *("maxTurns", "contextTokens", "systemPrompt", "historyTurns"),
    *("observationCharacters", "commandSeconds", "repeatedCommands"),
)
_SAID = " || ".join(f"has(self.agent.parameters.{name})" for name in _MEANINGLESS)
_PREFERENCE = "has(self.collect) && has(self.collect.preference)"
TOOL_USE_RULES = (
    Rule(
        rule="!has(self.suite.toolUse) || !(has(self.agent.name) || has(self.agent.importPath)"
        " || has(self.agent.options))",
        message="suite.toolUse has no agent but the model; leave agent.name, importPath and options out",
    ),
    Rule(
        rule=f"!has(self.suite.toolUse) || !({_SAID})",
        message="of agent.parameters only maxTokens means something to suite.toolUse; use its horizon,"
        " observationCharacters and repeatedActions",
    ),
    Rule(
        rule=f"!({_PREFERENCE}) || self.collect.preference.pairs != 'Alternates'"
        " || (has(self.suite.toolUse) && self.suite.toolUse.expert.alternates)",
        message="collect.preference.pairs Alternates needs suite.toolUse.expert.alternates: true",
    ),
    Rule(
        rule=f"!({_PREFERENCE}) || self.collect.preference.pairs != 'Branches'"
        " || (has(self.suite.toolUse) && self.suite.toolUse.expert.branches > 0)",
        message="collect.preference.pairs Branches needs suite.toolUse.expert.branches above 0",
    ),
)
"""What a run's spec may say beside a suite of this kind."""
