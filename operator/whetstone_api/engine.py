"""The engine of a ModelServer: what of `vllm serve` users decide, and what they must leave to Whetstone."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.chat_template import ChatTemplate
from whetstone_api.schema import ApiModel, Rule

OWN_FLAGS = (
    # Fields of the spec say these.
    *("model", "served-model-name", "host", "port", "dtype", "max-model-len", "quantization"),
    *("gpu-memory-utilization", "device-memory-utilization", "tensor-parallel-size", "pipeline-parallel-size"),
    *("enable-auto-tool-choice", "tool-call-parser", "reasoning-parser", "chat-template"),
    *("enable-lora", "lora-modules", "default-mm-loras", "max-loras", "max-lora-rank", "max-cpu-loras"),
    # How the pod starts and ends, and how many processes share the adapters.
    *("shutdown-timeout", "api-server-count", "headless", "nnodes", "node-rank", "master-addr", "master-port"),
    "distributed-executor-backend",
    # Ways around the guard: other doors, other keys, requests that bring their own code.
    *("middleware", "api-key", "uds", "grpc", "grpc-port", "root-path", "config", "hf-token"),
    *("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "ssl-ciphers", "enable-ssl-refresh"),
    *("trust-request-chat-template", "trust-request-mm-kwargs"),
    # Code that runs in the engine's process, beside the guard.
    *("tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "logits-processors", "worker-cls"),
    *("worker-extension-cls", "scheduler-cls", "model-class-overrides", "log-config-file", "logging-config"),
)
"""Long options of `vllm serve` that `extraArgs` must not set; neither do their `--no-` forms."""
OWN_FAMILIES = ("data-parallel-", "ssl-")
"""Starts of further such options."""
OWN_VARIABLES = (
    "PYTHON.*|LD_.*|GLIBC_TUNABLES|GCONV_PATH|PATH|CC|CXX|HOME|USER|LOGNAME|WHETSTONE_.*|KUBERNETES_.*",
    "HF_HUB_OFFLINE|HF_HOME|HF_TOKEN|TRITON_CACHE_DIR|TORCHINDUCTOR_CACHE_DIR",
    "VLLM_(ALLOW_RUNTIME_LORA_UPDATING|API_KEY|SKIP_MODEL_NAME_VALIDATION|SERVER_DEV_MODE|PLUGINS",
    "ALLOW_INSECURE_SERIALIZATION|LORA_RESOLVER_.*|USE_RUST_FRONTEND|RUST_FRONTEND_PATH|LOGGING_CONFIG_PATH",
    "CACHE_ROOT|CONFIG_ROOT|ENGINE_READY_TIMEOUT_S|HTTP_TIMEOUT_KEEP_ALIVE|NO_USAGE_STATS|HOST_IP|PORT|RPC_BASE_PATH",
    "MODEL_REDIRECT_PATH|USE_MODELSCOPE|KEEP_ALIVE_ON_ENGINE_DEATH|NCCL_SO_PATH|CUDART_SO_PATH|DP_.*)",
)
"""Alternatives of the names that `engine.env` must not set: the guard, the loader of code, and what the pod sets."""


class Dtype(StrEnum):
    """Precision of the engine."""

    AUTO = "Auto"
    FLOAT32 = "Float32"
    BFLOAT16 = "BFloat16"
    FLOAT16 = "Float16"


class Quantization(StrEnum):
    """How the engine keeps the weights."""

    FP8 = "Fp8"
    AWQ = "Awq"
    AWQ_MARLIN = "AwqMarlin"
    GPTQ = "Gptq"
    GPTQ_MARLIN = "GptqMarlin"
    COMPRESSED_TENSORS = "CompressedTensors"
    MODEL_OPT = "ModelOpt"


Share = Annotated[str, Field(max_length=8, pattern=r"^(0\.[0-9]*[1-9][0-9]*|1(\.0+)?)$")]
"""A share above 0, to 1, as text."""
Ways = Annotated[int, Field(ge=1, le=64)]


class Parallelism(ApiModel):
    """How many GPUs a replica has, and what they share."""

    tensor: Ways = 1
    """GPUs that share each layer."""
    pipeline: Ways = 1
    """Groups of GPUs that share the layers."""
    data: Ways = 1
    """Copies of the model in one pod that share the requests."""

    @property
    def devices(self) -> int:
        """Return how many GPUs one pod needs."""
        return self.tensor * self.pipeline * self.data


ParserName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class ToolCalling(ApiModel):
    """How tool calls and reasoning are read out of the model's text."""

    parser: ParserName | None = None
    """vLLM's tool-call parser (`hermes`, `llama3_json`, `mistral`, ...); clients may then use `tool_choice: auto`."""
    reasoning_parser: ParserName | None = None
    """vLLM's reasoning parser (`qwen3`, ...): moves reasoning out of `content`."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.parser) || has(self.reasoningParser)", message="give parser, reasoningParser or both"),
    )


class EngineVariable(ApiModel):
    """A variable of the engine's environment."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)]
    """Its value, as it is. Not for secrets."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"!self.name.matches('^({'|'.join(OWN_VARIABLES)})$')",
            message=(
                "env must not set what opens the engine to other code or clients, or what Whetstone sets itself"
                " (docs/modelserver.md lists the names); leave the variable out"
            ),
        ),
    )


_FLAGS = ", ".join(f"'--{flag}'" for flag in OWN_FLAGS + OWN_FAMILIES)
_NAME = "a.find('^--[^=.]*').replace('_', '-').replace('--no-', '--')"


class EngineSpec(ApiModel):
    """The vLLM engine."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Engine image; the operator's default (stock vLLM) when absent."""
    dtype: Dtype = Dtype.AUTO
    """Precision: Auto takes the checkpoint's. On CPUs use Float32."""
    max_model_length: Annotated[int, Field(ge=16, le=4194304)] | None = None
    """Longest context in tokens; the model's own limit when absent."""
    gpu_memory_utilization: Share | None = None
    """Share of each GPU's memory that the engine takes, above 0 to 1; vLLM's own default (0.92) when absent."""
    quantization: Quantization | None = None
    """How weights are kept; what the checkpoint says when absent. Fp8 also converts a plain checkpoint at start."""
    parallelism: Parallelism | None = None
    """GPUs of one replica: as many as tensor x pipeline x data are requested, unless resources name a device."""
    tool_calling: ToolCalling | None = None
    """How tool calls and reasoning are read out of the model's text."""
    chat_template: ChatTemplate | None = None
    """Template that conversations are rendered with; the model's own when absent."""
    env: Annotated[list[EngineVariable], Field(max_length=64)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Further variables of the engine's environment."""
    extra_args: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=64)] | None = None
    """Further arguments of `vllm serve`, as they are, with long option names."""
    rules: ClassVar[tuple[Rule, ...]] = (
        # The engine's parser takes any unique start of an option, and _ for -.
        Rule(
            rule=(
                "!has(self.extraArgs) || !self.extraArgs.exists(a, a.startsWith('--') &&"
                f" ([{_FLAGS}].exists(d, d.startsWith({_NAME})) ||"
                f" a.matches('^--(no[-_])?({'|'.join(OWN_FAMILIES).replace('-', '[-_]')})')))"
            ),
            message=(
                "extraArgs must not set, or abbreviate, what Whetstone sets itself or what opens the engine to other"
                " code or clients (docs/modelserver.md lists the options); use the fields of the spec"
            ),
        ),
        Rule(
            rule="!has(self.extraArgs) || !self.extraArgs.exists(a, a.matches('^-[A-NP-Za-z]'))",
            message="extraArgs must use long option names (--compilation-config, not -cc); only -O may be short",
        ),
    )
