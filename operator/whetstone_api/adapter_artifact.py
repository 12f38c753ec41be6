"""Format of a published adapter: a folder that PEFT and vLLM read, plus what tells of it.

    adapter_config.json, adapter_model.safetensors   identity: the content digest covers these
    probe.json                                       how the adapter changes the base's output (`Probe`)
    lineage.json                                     where it came from (`Lineage`)
    tokenizer.json, chat_template.jinja, ...         the base's tokenizer and template (`is_tokenizer_file`)
    training_metrics.json, training_loss.png         figures of each step (`TrainingRecord`), and their curve
    README.md                                        model card of the Hugging Face Hub
    manifest.json                                    sizes and checksums of all other files (`Manifest`)

The folder appears at its place by one rename, so a place holds either nothing or a whole artifact. Times, versions and
speeds are in files that the content digest does not cover: a training that was killed on the way has the digest of one
that was not.
"""

from typing import Any

from pydantic import Field

from whetstone_api.wire import WireModel

MANIFEST_FILE = "manifest.json"
PROBE_FILE = "probe.json"
LINEAGE_FILE = "lineage.json"
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
METRICS_FILE = "training_metrics.json"
CURVE_FILE = "training_loss.png"
CARD_FILE = "README.md"
IDENTITY_FILES = (CONFIG_FILE, WEIGHTS_FILE)
"""The files that the content digest covers: what an engine reads."""
_TOKENIZER_FILES = frozenset(
    {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "tokenizer.model",
        "spiece.model",
        "tekken.json",
        "chat_template.jinja",
        "chat_template.json",
    }
)


def is_tokenizer_file(name: str) -> bool:
    """Return whether a file of a model's folder belongs to its tokenizer or holds its chat template."""
    return name in _TOKENIZER_FILES or name.endswith(".tiktoken")


def is_served(name: str) -> bool:
    """Return whether a server's copy of an adapter has a file of its folder.

    Tokenizer and card are for people and for PEFT: a server renders and tokenizes with its base model's files.
    """
    is_plain = "/" not in name and not name.startswith(".") and name.endswith((".json", ".safetensors"))
    return is_plain and name != METRICS_FILE and not is_tokenizer_file(name)


class FileEntry(WireModel):
    """One file of an artifact."""

    sha256: str
    """Checksum in hex."""
    size: int
    """Bytes."""


class Manifest(WireModel):
    """What the folder holds."""

    digest: str
    """Content digest: of an adapter over `IDENTITY_FILES`, of a model over all files."""
    files: dict[str, FileEntry]
    """Every file but the manifest itself, by relative path."""


class ProbeCase(WireModel):
    """One fixed conversation with the log-probabilities of its answer."""

    token_ids: list[int]
    """The whole sequence: prompt and answer."""
    answer_start: int
    """Index of the answer's first token."""
    base_logprobs: list[float]
    """Natural log-probability of each answer token under the base model."""
    adapter_logprobs: list[float]
    """The same under base plus adapter."""


class TemplateCase(WireModel):
    """The start of a training conversation as the chat template rendered it."""

    messages: list[dict[str, Any]]
    """Messages up to the first learned answer, as chat templates take them."""
    tools: list[dict[str, Any]] | None = None
    """Functions that the conversation offers the model."""
    token_ids: list[int]
    """What the model reads of them, up to where its answer begins."""


class Probe(WireModel):
    """The recorded effect of an adapter, and how exact the record is."""

    base_fingerprint: str
    """Fingerprint of the base model's folder."""
    dtype: str
    """Precision of the measurement: float32, bfloat16 or float16."""
    noise: float
    """Largest absolute difference per token between two measurements of the same thing."""
    cases: list[ProbeCase]
    """The conversations."""
    templates: list[TemplateCase] = Field(default_factory=list)
    """Conversations by which a server's chat template can be compared with the one of the training."""


class TrainingRecord(WireModel):
    """Figures of a training, step by step."""

    steps: list[dict[str, int | float]]
    """Of each optimizer step: `step`, `loss`, `learningRate`, `gradNorm`, `tokensPerSecond`, and what
    the method logs beside them."""
    evaluations: list[dict[str, int | float]] = Field(default_factory=list)
    """Of each evaluation: `step`, `evalLoss`, and others."""
    published_step: int
    """The step whose weights are published."""
    final: dict[str, str]
    """Final figures as decimals, as in the status."""


class BaseIdentity(WireModel):
    """The base model of an adapter."""

    source: str
    """URI of the model's folder."""
    fingerprint: str
    """Fingerprint of the folder (`whetstone_artifacts.fingerprint`)."""


class DatasetIdentity(WireModel):
    """A dataset as it was read."""

    name: str
    digest: str
    """SHA-256 of the file, `sha256:…`."""
    rows: int


class Lineage(WireModel):
    """Where an adapter came from."""

    recipe_digest: str
    """Digest of `recipe`."""
    recipe: dict[str, object]
    """What was asked: method, base fingerprint, data digests, LoRA, hyperparameters, seed."""
    base: BaseIdentity
    datasets: list[DatasetIdentity]
    task_digests: list[str] = Field(default_factory=list)
    """Digests of the tasks that the training rows came from, where the rows say so (field `task`)."""
    object_uid: str
    object_name: str
    namespace: str
    metrics: dict[str, str] = Field(default_factory=dict)
    """Final figures as decimals."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of Python and of the libraries that decide what comes out."""
    image: str | None = None
    """The trainer's image, as the operator named it."""
    plan: dict[str, object] | None = None
    """How the training used its device (`ChosenPlan`)."""
    published_at: str
    """RFC 3339."""
    step: int | None = None
    """The optimizer step whose weights these are: the last one, or with early stopping the best one."""
    merged_adapter: str | None = None
    """In the folder of a merged model: content digest of the adapter that is merged in. What else is said here is
    said of that adapter."""
