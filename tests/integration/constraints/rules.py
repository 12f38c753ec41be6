"""Every CEL rule of the three kinds with an object that it accepts and one that it refuses."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from integration.constraints.objects import DIGEST, IMAGE, VARIANTS, Object, steps_of
from integration.constraints.table import METRICS
from whetstone_api.engine import OWN_FLAGS

MISSING = object()
"""Stands for "take the field away" in a change."""
NOT_PLAIN = "uri must not contain . or .. as a path segment"
FORBIDDEN_ARGUMENTS = (
    *(f"--{flag}" for flag in OWN_FLAGS),
    "--port=1",
    "--data-parallel-size=2",
    "--data_parallel_rank",
    "--no-enable-lora",
    "--no_enable_lora",
    "--served_model_name=x",
    "--serv=x",
    "--no-enable-lor",
    "--mod",
    "--middlew=x",
    "--trust-request-ch",
    "--",
    "--data_p=2",
    "--model.x=1",
)
FORBIDDEN_VARIABLES = (
    *("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "PATH", "HOME", "WHETSTONE_TOKEN_FILE", "HF_TOKEN"),
    *("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_API_KEY", "VLLM_SKIP_MODEL_NAME_VALIDATION", "VLLM_SERVER_DEV_MODE"),
    *("VLLM_PLUGINS", "VLLM_USE_RUST_FRONTEND", "VLLM_LORA_RESOLVER_CACHE_DIR", "VLLM_MODEL_REDIRECT_PATH"),
)


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """One rule.

    Args:
        node: Schema path of the node that carries the rule, with the kind.
        message: Start of the rule's message.
        accept: Changes of the base object that pass, by path with explicit indices.
        reject: Changes that are refused with the message, each for itself.
        variant: Which of the kind's base objects is changed.
    """

    node: str
    message: str
    accept: tuple[Mapping[str, Any], ...]
    reject: tuple[Mapping[str, Any], ...]
    variant: int = 0

    @property
    def kind(self) -> str:
        """The kind."""
        return self.node.split(".", 1)[0]


def changed(obj: Object, changes: Mapping[str, Any]) -> Object:
    """Return a copy of an object with other values at some paths (`spec.adapters.0.name`)."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *parents, last = steps_of(path)
        parent: Any = result
        for step in parents:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        if value is MISSING:
            del parent[last]
        elif isinstance(parent, list):
            parent[int(last)] = value
        else:
            parent[last] = value
    return result


def _plain_uri(node: str, *, variant: int = 0) -> RuleRow:
    path = node.split(".", 1)[1].replace("[]", ".0") + ".uri"
    return RuleRow(
        node=node,
        message=NOT_PLAIN,
        accept=({path: "pvc://c/a..b"}, {path: "pvc://c/.hidden"}),
        reject=tuple({path: uri} for uri in ("pvc://c/../b", "pvc://c/a/..", "pvc://c/./b", "pvc://c/a/.")),
        variant=variant,
    )


def _names(kind: str) -> list[RuleRow]:
    return [
        RuleRow(
            node=kind,
            message="metadata.name must be at most 40 characters",
            accept=({"metadata.name": "a" * 40},),
            reject=({"metadata.name": "a" * 41},),
        ),
        RuleRow(
            node=kind,
            message="metadata.name must start with a letter",
            accept=({"metadata.name": "a-0"},),
            reject=({"metadata.name": "a.b"}, {"metadata.name": "0a"}),
        ),
    ]


PROCESS = {"spec.suite.harbor.environment": {"kind": "Process"}, "spec.suite.harbor.trialResources": MISSING}
ANY_AUTHORITY = {"spec.judge.certificateAuthorityRef": MISSING}
BY_SERVER = {"spec.judge.modelServerRef": {"name": "server"}}


def _gates(node: str, first: str, *, variant: int = 0) -> list[RuleRow]:
    """Return the rules of a list of gates, whose first has a minimum."""
    mean = {"metric": "Mean", "minimum": "0"}
    return [
        RuleRow(
            node=f"{node}[]",
            message="give exactly one of minimum, maximum and minimumImprovement",
            accept=(
                {first: {"metric": "Mean", "minimumImprovement": "0"}},
                {first: {"metric": "Mean", "maximum": "1"}},
            ),
            reject=(
                {first: {"metric": "Mean"}},
                {first: {**mean, "minimumImprovement": "0"}},
                {first: {**mean, "maximum": "0"}},
            ),
            variant=variant,
        ),
        RuleRow(
            node=f"{node}[]",
            message="minimumImprovement works on Mean only",
            accept=({first: {"metric": "Coverage", "minimum": "0"}},),
            reject=tuple({first: {"metric": one, "minimumImprovement": "0"}} for one in ("Coverage", "StrictMean")),
            variant=variant,
        ),
        RuleRow(
            node=f"{node}[]",
            message="k belongs to PassAtK",
            accept=({first: {"metric": "PassAtK", "k": 1, "minimum": "0"}},),
            reject=({first: {"metric": "PassAtK", "minimum": "0"}}, {first: {**mean, "k": 1}}),
            variant=variant,
        ),
        RuleRow(
            node=f"{node}[]",
            message="confidence works on Mean only",
            accept=({first: {**mean, "confidence": "0.9"}},),
            reject=({first: {"metric": "StrictMean", "minimum": "0", "confidence": "0.9"}},),
            variant=variant,
        ),
    ]


TOOL_USE = "spec.suite.toolUse"
HARBOR = {"dataset": {"uri": "pvc://c/p"}}


def _model(node: str, path: str) -> list[RuleRow]:
    """Return the rules of a model by reference, which the first variant names by URL."""
    return [
        RuleRow(
            node=f"BenchmarkRun.{node}",
            message="give exactly one of modelServerRef and url",
            accept=({f"{path}.secretRef": MISSING},),
            reject=(
                {f"{path}.modelServerRef": {"name": "server"}},
                {f"{path}.url": MISSING, f"{path}.secretRef": MISSING},
            ),
            variant=6 if path.endswith("overseer") else 5,
        ),
        RuleRow(
            node=f"BenchmarkRun.{node}",
            message="secretRef belongs to url",
            accept=({f"{path}.secretRef": MISSING},),
            reject=({f"{path}.url": MISSING, f"{path}.modelServerRef": {"name": "server"}},),
            variant=6 if path.endswith("overseer") else 5,
        ),
    ]


def _tool_use() -> list[RuleRow]:
    """Return the rules of a suite of questions that are answered by calling tools, and of what may stand beside it."""
    expert, pairs = f"{TOOL_USE}.expert", "spec.collect.preference.pairs"
    plain = {pairs: "Attempts"}
    return [
        _plain_uri(f"BenchmarkRun.{TOOL_USE}.environment", variant=5),
        RuleRow(
            node=f"BenchmarkRun.{TOOL_USE}.environment",
            message="secretRef has no use with pvc://",
            accept=({f"{TOOL_USE}.environment.uri": "https://h/company.tar"},),
            reject=({f"{TOOL_USE}.environment.uri": "pvc://data/company"},),
            variant=6,
        ),
        RuleRow(
            node="BenchmarkRun.spec.suite",
            message="give exactly one of harbor and toolUse",
            accept=({f"{TOOL_USE}.horizon": 1},),
            reject=({"spec.suite.harbor": HARBOR}, {TOOL_USE: MISSING, **plain}),
            variant=5,
        ),
        RuleRow(
            node=f"BenchmarkRun.{TOOL_USE}.tools",
            message="topK is above largestTopK",
            accept=(
                {f"{TOOL_USE}.tools": {"topK": 11}},
                {f"{TOOL_USE}.tools": {"topK": 11, "topKBy": "Agent", "largestTopK": 11}},
            ),
            reject=({f"{TOOL_USE}.tools": {"topK": 11, "topKBy": "Agent"}},),
            variant=5,
        ),
        RuleRow(
            node=f"BenchmarkRun.{TOOL_USE}.scorer",
            message="kind Judge and judge go together",
            accept=({f"{TOOL_USE}.scorer": {"kind": "Exact"}},),
            reject=({f"{TOOL_USE}.scorer": {"kind": "Judge"}}, {f"{TOOL_USE}.scorer.kind": "Exact"}),
            variant=5,
        ),
        *_model(f"{TOOL_USE}.scorer.judge", f"{TOOL_USE}.scorer.judge"),
        *_model(f"{TOOL_USE}.overseer", f"{TOOL_USE}.overseer"),
        *_model(f"{TOOL_USE}.expert.witness", f"{TOOL_USE}.expert.witness"),
        RuleRow(
            node=f"BenchmarkRun.{expert}",
            message="a witness sees the model's steps",
            accept=({f"{expert}.mode": "Random"}, {f"{expert}.mode": "Informed"}),
            reject=({f"{expert}.mode": "GroundTruth"},),
            variant=5,
        ),
        RuleRow(
            node=f"BenchmarkRun.{expert}",
            message="alternates and branches need an expert",
            accept=({expert: MISSING, **plain}, {expert: {"mode": "GroundTruth", "alternates": True}, **plain}),
            reject=({expert: {"alternates": True}, **plain}, {expert: {"alternates": True, "branches": 1}}),
            variant=5,
        ),
        RuleRow(
            node=f"BenchmarkRun.{expert}",
            message="branches need alternates: true",
            accept=({f"{expert}.branches": 2},),
            reject=({f"{expert}.alternates": False},),
            variant=5,
        ),
        RuleRow(
            node="BenchmarkRun.spec",
            message="suite.toolUse has no agent but the model",
            accept=({"spec.agent": MISSING}, {"spec.agent": {"budget": {"runTokens": 1}}}),
            reject=(
                {"spec.agent": {"name": "whetstone"}},
                {"spec.agent": {"importPath": "m:C", "configMapRef": {"name": "code"}}},
                {"spec.agent": {"options": {"a": "b"}}},
            ),
            variant=5,
        ),
        RuleRow(
            node="BenchmarkRun.spec",
            message="of agent.parameters only maxTokens means something",
            accept=({"spec.agent": {"parameters": {"maxTokens": 1}}},),
            reject=tuple(
                {"spec.agent": {"parameters": {name: value}}}
                for name, value in {
                    "maxTurns": 2,
                    "contextTokens": 16,
                    "systemPrompt": "a",
                    "historyTurns": 1,
                    "observationCharacters": 1,
                    "commandSeconds": 1,
                    "repeatedCommands": 2,
                }.items()
            ),
            variant=5,
        ),
        RuleRow(
            node="BenchmarkRun.spec",
            message="collect.preference.pairs Alternates needs",
            accept=({pairs: "Alternates"},),
            reject=(
                {pairs: "Alternates", f"{expert}.branches": 0, f"{expert}.alternates": False},
                {pairs: "Alternates", "spec.suite": {"harbor": HARBOR}},
            ),
            variant=5,
        ),
        RuleRow(
            node="BenchmarkRun.spec",
            message="collect.preference.pairs Branches needs",
            accept=({pairs: "Branches"},),
            reject=({f"{expert}.branches": 0}, {"spec.suite": {"harbor": HARBOR}}),
            variant=5,
        ),
    ]


UNSLOTH = {
    "spec.backend": "Unsloth",
    **dict.fromkeys(("spec.initAdapter", "spec.distributed", "spec.plan"), MISSING),
}
SOURCE = {"uri": "pvc://c/p"}
TASK_SET = "spec.suite.harbor.dataset"
RULES: tuple[RuleRow, ...] = (
    *_names("ModelServer"),
    *_names("LoRATrainingJob"),
    *_names("BenchmarkRun"),
    _plain_uri("ModelServer.spec.model.source"),
    _plain_uri("ModelServer.spec.adapters[].source"),
    _plain_uri("LoRATrainingJob.spec.baseModel.source"),
    _plain_uri("LoRATrainingJob.spec.initAdapter.source"),
    _plain_uri("LoRATrainingJob.spec.datasets[].source", variant=2),
    RuleRow(
        node="LoRATrainingJob.spec.datasets[].source",
        message="secretRef has no use with pvc://",
        accept=({"spec.datasets.0.source": {"uri": "https://h/f.jsonl", "secretRef": {"name": "s"}}},),
        reject=({"spec.datasets.0.source.secretRef": {"name": "s"}},),
        variant=2,
    ),
    _plain_uri("LoRATrainingJob.spec.preference.reference.adapter.source", variant=2),
    _plain_uri("LoRATrainingJob.spec.preference.reference.model", variant=2),
    _plain_uri("LoRATrainingJob.spec.output.adapter"),
    _plain_uri("LoRATrainingJob.spec.output.merged"),
    _plain_uri("LoRATrainingJob.spec.output.push[]"),
    RuleRow(
        node=f"BenchmarkRun.{TASK_SET}",
        message=NOT_PLAIN,
        accept=({TASK_SET: {"uri": "pvc://c/a..b"}}, {TASK_SET: {"uri": "https://h/.hidden.tar"}}),
        reject=({TASK_SET: {"uri": "pvc://c/../b"}}, {TASK_SET: {"uri": "https://h/a/./b.tar"}}),
    ),
    RuleRow(
        node=f"BenchmarkRun.{TASK_SET}",
        message="give exactly one of uri and configMapRef",
        accept=({TASK_SET: SOURCE}, {TASK_SET: {"configMapRef": {"name": "m", "key": "k.tar"}}}),
        reject=({TASK_SET: {"digest": DIGEST}}, {TASK_SET: {**SOURCE, "configMapRef": {"name": "m", "key": "k.tar"}}}),
    ),
    RuleRow(
        node=f"BenchmarkRun.{TASK_SET}",
        message="secretRef has no use with pvc:// or configMapRef",
        accept=({TASK_SET: {"uri": "https://h/a.tar", "secretRef": {"name": "s"}}},),
        reject=(
            {TASK_SET: {**SOURCE, "secretRef": {"name": "s"}}},
            {TASK_SET: {"configMapRef": {"name": "m", "key": "k.tar"}, "secretRef": {"name": "s"}}},
        ),
    ),
    _plain_uri("BenchmarkRun.spec.suite.harbor.oracle.verdicts"),
    RuleRow(
        node="BenchmarkRun.spec.suite.harbor.oracle",
        message="verdicts.uri must name a folder inside the claim",
        accept=({"spec.suite.harbor.oracle": {}}, {"spec.suite.harbor.oracle.verdicts.uri": "pvc://data/a/b"}),
        reject=({"spec.suite.harbor.oracle.verdicts.uri": "pvc://data"},),
    ),
    RuleRow(
        node="BenchmarkRun.spec.suite.harbor.images",
        message="give prefix, map or both",
        accept=(
            {"spec.suite.harbor.images": {"prefix": "r"}},
            {"spec.suite.harbor.images": {"map": {"docker.io/a/b:1": "c"}}},
        ),
        reject=({"spec.suite.harbor.images": {}},),
    ),
    _plain_uri("BenchmarkRun.spec.output"),
    _plain_uri("BenchmarkRun.spec.agent.source", variant=4),
    RuleRow(
        node="BenchmarkRun.spec.agent.source",
        message="secretRef has no use with pvc://",
        accept=({"spec.agent.source": {"uri": "https://h/a.tar", "secretRef": {"name": "s"}}},),
        reject=({"spec.agent.source.secretRef": {"name": "s"}},),
        variant=4,
    ),
    RuleRow(
        node="BenchmarkRun.spec.agent",
        message="give at most one of name and importPath",
        accept=({"spec.agent.importPath": "b.c:D"},),
        reject=({"spec.agent.name": "oracle"},),
        variant=3,
    ),
    RuleRow(
        node="BenchmarkRun.spec.agent",
        message="importPath and the place of its code",
        accept=({"spec.agent": {}},),
        reject=(
            {"spec.agent": {"importPath": "a:B"}},
            {"spec.agent": {"name": "nop", "configMapRef": {"name": "mine"}}},
            {"spec.agent": {"source": {"uri": "pvc://c/p"}}},
        ),
    ),
    RuleRow(
        node="BenchmarkRun.spec.agent",
        message="give at most one of configMapRef and source",
        accept=({"spec.agent": {"importPath": "a:B", "source": {"uri": "pvc://c/p"}}},),
        reject=({"spec.agent.source": {"uri": "pvc://c/p"}},),
        variant=3,
    ),
    RuleRow(
        node="ModelServer.spec",
        message="an adapter must not have the base's servedName",
        accept=({"spec.adapters.0.name": "other"},),
        reject=({"spec.adapters.0.name": "base"},),
    ),
    RuleRow(
        node="ModelServer.spec",
        message="an alias must not have the base's servedName",
        accept=({"spec.aliases.0.name": "other"},),
        reject=({"spec.aliases.0.name": "base"},),
    ),
    RuleRow(
        node="ModelServer.spec",
        message="aliases and adapters share one name space",
        accept=({"spec.aliases.0.name": "c"}, {"spec.adapters": MISSING}),
        reject=({"spec.aliases.0.name": "a"},),
        variant=1,
    ),
    RuleRow(
        node="ModelServer.spec",
        message="an alias's target must be one of spec.adapters or the base's servedName",
        accept=({"spec.aliases.0.targets.0.adapter": "base"}, {"spec.aliases.0.targets.0.adapter": "a"}),
        reject=({"spec.aliases.0.targets.0.adapter": "nobody"}, {"spec.adapters": MISSING}),
    ),
    RuleRow(
        node="ModelServer.spec.adapterCapacity",
        message="headroom has no use without Auto",
        accept=(
            {"spec.adapterCapacity": {"maxRank": "Auto", "headroom": {"rank": 32}}},
            {"spec.adapterCapacity": {"maxLoras": "Auto", "headroom": {"loras": 0}}},
            {"spec.adapterCapacity": {}},
        ),
        reject=({"spec.adapterCapacity": {"maxLoras": 2, "maxRank": 8, "headroom": {"loras": 1}}},),
    ),
    RuleRow(
        node="ModelServer.spec.adapterCapacity",
        message="maxCpuLoras must not be below maxLoras",
        accept=(
            {"spec.adapterCapacity": {"maxCpuLoras": 4}},
            {"spec.adapterCapacity": {"maxCpuLoras": 1, "maxLoras": "Auto"}},
            {"spec.adapterCapacity": {"maxCpuLoras": "Auto", "maxLoras": 64}},
        ),
        reject=(
            {"spec.adapterCapacity": {"maxCpuLoras": 3}},
            {"spec.adapterCapacity": {"maxCpuLoras": 7, "maxLoras": 8}},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.model.defaultSampling",
        message="temperature must be at most 2",
        accept=({"spec.model.defaultSampling.temperature": "0"}, {"spec.model.defaultSampling.temperature": "2"}),
        reject=({"spec.model.defaultSampling.temperature": "2.01"}, {"spec.model.defaultSampling.temperature": "1e1"}),
    ),
    RuleRow(
        node="ModelServer.spec.model.defaultSampling",
        message="topP must be above 0 and at most 1",
        accept=({"spec.model.defaultSampling.topP": "1"}, {"spec.model.defaultSampling.topP": "1e-2"}),
        reject=({"spec.model.defaultSampling.topP": "0"}, {"spec.model.defaultSampling.topP": "1.01"}),
    ),
    RuleRow(
        node="ModelServer.spec.engine",
        message="extraArgs must not set, or abbreviate, what Whetstone sets itself",
        accept=(
            {"spec.engine.extraArgs": ["--enforce-eager", "--max-num-seqs=4", "--model-impl=auto", "--tokenizer-mode"]},
            {"spec.engine.extraArgs": ["--speculative-config", '{"model": "--model"}', "--no-enable-prefix-caching"]},
        ),
        reject=tuple({"spec.engine.extraArgs": ["--enforce-eager", one]} for one in FORBIDDEN_ARGUMENTS),
    ),
    RuleRow(
        node="ModelServer.spec.engine",
        message="extraArgs must use long option names",
        accept=({"spec.engine.extraArgs": ["-O3", "-1", "-"]},),
        reject=tuple({"spec.engine.extraArgs": [one]} for one in ("-tp", "-dp=2", "-q", "-asc", "-cc.mode=3")),
    ),
    RuleRow(
        node="ModelServer.spec.engine.toolCalling",
        message="give parser, reasoningParser or both",
        accept=({"spec.engine.toolCalling.parser": MISSING}, {"spec.engine.toolCalling.reasoningParser": MISSING}),
        reject=({"spec.engine.toolCalling": {}},),
    ),
    RuleRow(
        node="ModelServer.spec.engine.chatTemplate",
        message="give exactly one of inline and configMapRef",
        accept=({"spec.engine.chatTemplate": {"configMapRef": {"name": "chat", "key": "t"}}}, {}),
        reject=(
            {"spec.engine.chatTemplate": {}},
            {"spec.engine.chatTemplate.configMapRef": {"name": "chat", "key": "t"}},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.engine.env[]",
        message="env must not set what opens the engine",
        accept=tuple({"spec.engine.env.0.name": one} for one in ("VLLM_LOGGING_LEVEL", "NCCL_DEBUG", "MY_PATH")),
        reject=tuple({"spec.engine.env.0.name": one} for one in FORBIDDEN_VARIABLES),
    ),
    RuleRow(
        node="ModelServer.spec.adapters[]",
        message="give exactly one of source and trainingJobRef",
        accept=({"spec.adapters.0": {"name": "a", "trainingJobRef": {"name": "t"}}},),
        reject=({"spec.adapters.0": {"name": "a"}}, {"spec.adapters.0.trainingJobRef": {"name": "t"}}),
    ),
    RuleRow(
        node="ModelServer.spec.adapters[]",
        message="source.digest is needed",
        accept=({"spec.adapters.0.source.digest": "sha256:" + "1" * 64},),
        reject=({"spec.adapters.0.source.digest": MISSING},),
    ),
    RuleRow(
        node="ModelServer.spec.model.source",
        message="secretRef has no use with pvc://",
        accept=({"spec.model.source": {"uri": "hf://o/r@main", "secretRef": {"name": "s"}}},),
        reject=({"spec.model.source.secretRef": {"name": "s"}},),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="give exactly one of source and trainingJobRef",
        accept=({"spec.model.source": MISSING, "spec.model.trainingJobRef": {"name": "t"}},),
        reject=({"spec.model.source": MISSING}, {"spec.model.trainingJobRef": {"name": "t"}}),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="source.digest is needed with s3:// and https://",
        accept=(
            {"spec.model.source": {"uri": "s3://bkt/k", "digest": DIGEST}},
            {"spec.model.source": {"uri": "https://h/k", "digest": DIGEST}},
        ),
        reject=({"spec.model.source.uri": "s3://bkt/k"}, {"spec.model.source.uri": "https://h/k"}),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="source.digest of a model has no use with pvc://",
        accept=({"spec.model.source": {"uri": "hf://o/r@main", "digest": DIGEST}},),
        reject=({"spec.model.source.digest": DIGEST},),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="cache has no use with pvc://",
        accept=({"spec.model.source.uri": "hf://o/r@main", "spec.model.cache": {"claimName": "c"}},),
        reject=(
            {"spec.model.cache": {"claimName": "c"}},
            {
                "spec.model.source": MISSING,
                "spec.model.trainingJobRef": {"name": "t"},
                "spec.model.cache": {"claimName": "c"},
            },
        ),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="imageVolume needs a source.uri of oci://",
        accept=({"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {}},),
        reject=(
            {"spec.model.imageVolume": {}},
            {"spec.model.source": MISSING, "spec.model.trainingJobRef": {"name": "t"}, "spec.model.imageVolume": {}},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.model",
        message="with imageVolume the node pulls and keeps the image",
        accept=({"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {"subPath": "models"}},),
        reject=(
            {"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {}, "spec.model.cache": {"claimName": "c"}},
            {"spec.model.source": {"uri": IMAGE, "digest": DIGEST}, "spec.model.imageVolume": {}},
            {"spec.model.source": {"uri": IMAGE, "secretRef": {"name": "s"}}, "spec.model.imageVolume": {}},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.model.imageVolume",
        message="subPath must not contain . or ..",
        accept=({"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {"subPath": "a.b/c"}},),
        reject=(
            {"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {"subPath": "a/../b"}},
            {"spec.model.source.uri": IMAGE, "spec.model.imageVolume": {"subPath": "."}},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.adapters[].source",
        message="secretRef has no use with pvc://",
        accept=({"spec.adapters.0.source": {"uri": "s3://bkt/k", "digest": DIGEST, "secretRef": {"name": "s"}}},),
        reject=({"spec.adapters.0.source.secretRef": {"name": "s"}},),
    ),
    RuleRow(
        node="ModelServer.spec.adapterStores[]",
        message="give exactly one of claimName and secretRef",
        accept=({"spec.adapterStores.0": {"name": "s", "secretRef": {"name": "k"}}},),
        reject=({"spec.adapterStores.0": {"name": "s"}}, {"spec.adapterStores.0.secretRef": {"name": "k"}}),
    ),
    RuleRow(
        node="ModelServer.spec.aliases[]",
        message="at least one target needs a weight above 0",
        accept=({"spec.aliases.0.targets": [{"adapter": "a", "weight": 0}, {"adapter": "b", "weight": 1}]},),
        reject=(
            {"spec.aliases.0.targets.0.weight": 0},
            {"spec.aliases.0.targets": [{"adapter": "a", "weight": 0}, {"adapter": "b", "weight": 0}]},
        ),
    ),
    RuleRow(
        node="ModelServer.spec.aliases[]",
        message="give exactly one of targets and promotion",
        accept=({"spec.aliases.0": {"name": "s", "targets": [{"adapter": "a"}]}},),
        reject=({"spec.aliases.0": {"name": "s"}}, {"spec.aliases.0.targets": [{"adapter": "a"}]}),
        variant=1,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.baseModel",
        message="give exactly one of modelServerRef and source",
        accept=({"spec.baseModel": {"modelServerRef": {"name": "m"}}}, {"spec.baseModel": {"source": SOURCE}}),
        reject=({"spec.baseModel": {}}, {"spec.baseModel.modelServerRef": {"name": "m"}}),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.datasets[]",
        message="give exactly one of source, configMapRef and benchmarkRunRef",
        accept=(
            {"spec.datasets.0": {"name": "d", "configMapRef": {"name": "m", "key": "k"}}},
            {"spec.datasets.0": {"name": "d", "benchmarkRunRef": {"name": "r"}}},
        ),
        reject=(
            {"spec.datasets.0": {"name": "d"}},
            {"spec.datasets.0.configMapRef": {"name": "m", "key": "k"}},
            {"spec.datasets.0.benchmarkRunRef": {"name": "r"}},
        ),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.datasets[].filter",
        message="a filter needs minimumReward or maximumTurns",
        accept=({"spec.datasets.0.filter": {"minimumReward": "0"}}, {"spec.datasets.0.filter": {"maximumTurns": 1}}),
        reject=({"spec.datasets.0.filter": {}},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.evaluation",
        message="give exactly one of evaluation.dataset and share",
        accept=({"spec.evaluation": {"dataset": "held-out"}},),
        reject=({"spec.evaluation": {}}, {"spec.evaluation.share": "0.1"}),
        variant=1,
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="evaluation.dataset must name one of datasets",
        accept=({"spec.evaluation.dataset": "d"}, {"spec.evaluation": MISSING}),
        reject=(
            {"spec.evaluation.dataset": "other"},
            {"spec.datasets": [{"name": "held-out", "source": SOURCE}]},
        ),
        variant=1,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.hyperparameters",
        message="give at most one of epochs and maxSteps",
        accept=({"spec.hyperparameters": {}}, {"spec.hyperparameters": {"maxSteps": 1}}),
        reject=({"spec.hyperparameters.maxSteps": 1},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.output",
        message="output.adapter.uri must name a folder inside the claim",
        accept=({"spec.output.adapter.uri": "pvc://c/p"},),
        reject=({"spec.output.adapter.uri": "pvc://claim"},),
    ),
    RuleRow(
        node="BenchmarkRun.spec.sampling",
        message="topP must be above 0 and at most 1",
        accept=({"spec.sampling.topP": "1"}, {"spec.sampling.topP": "1e-2"}),
        reject=({"spec.sampling.topP": "0"}, {"spec.sampling.topP": "1.01"}),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.workspace",
        message="give exactly one of claimName and claimTemplate",
        accept=({"spec.workspace": {"claimTemplate": {"size": "1Gi"}}}, {"spec.workspace": {"claimName": "w"}}),
        reject=(
            {"spec.workspace": {}},
            {"spec.workspace": {"claimName": "w", "claimTemplate": {"size": "1Gi"}}},
        ),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.initAdapter",
        message="give exactly one of source and trainingJobRef",
        accept=({"spec.initAdapter": {"trainingJobRef": {"name": "t"}}},),
        reject=({"spec.initAdapter": {}}, {"spec.initAdapter.trainingJobRef": {"name": "t"}}),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="preference needs method DPO",
        accept=({"spec.method": "SFT", "spec.preference": MISSING}, {"spec.preference": MISSING}),
        reject=({"spec.method": "SFT"},),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="loss.target must be Assistant with method DPO",
        accept=({"spec.loss": MISSING}, {"spec.loss": {}}),
        reject=({"spec.loss.target": "LastTurn"}, {"spec.loss.target": "All"}),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.preference",
        message="preference.beta must be above 0",
        accept=({"spec.preference.beta": "1e-3"}, {"spec.preference": {}}),
        reject=({"spec.preference.beta": "0"}, {"spec.preference.beta": "0.0"}),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.preference.reference",
        message="preference.reference needs a model, an adapter, or both",
        accept=({"spec.preference.reference.model": MISSING}, {"spec.preference.reference.adapter": MISSING}),
        reject=({"spec.preference.reference": {}},),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.preference.reference.adapter",
        message="give exactly one of source and trainingJobRef",
        accept=({"spec.preference.reference.adapter": {"trainingJobRef": {"name": "t"}}},),
        reject=(
            {"spec.preference.reference.adapter": {}},
            {"spec.preference.reference.adapter.trainingJobRef": {"name": "t"}},
        ),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.preference.losses[]",
        message="the weight of a loss must be above 0",
        accept=({"spec.preference.losses.0": {"type": "Ipo"}}, {"spec.preference.losses.0.weight": "0.1"}),
        reject=({"spec.preference.losses.0.weight": "0"},),
        variant=2,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.output",
        message="output.merged.uri must name a folder inside the claim",
        accept=({"spec.output.merged": {"uri": "pvc://c/m"}},),
        reject=({"spec.output.merged": {"uri": "pvc://claim"}},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.output",
        message="output.merged.uri and output.adapter.uri must be two folders",
        accept=({"spec.output.adapter.uri": "pvc://c/p", "spec.output.merged": {"uri": "pvc://c/pm"}},),
        reject=(
            {"spec.output.adapter.uri": "pvc://c/p", "spec.output.merged": {"uri": "pvc://c/p"}},
            {"spec.output.adapter.uri": "pvc://c/p", "spec.output.merged": {"uri": "pvc://c/p/m"}},
            {"spec.output.adapter.uri": "pvc://c/p/a", "spec.output.merged": {"uri": "pvc://c/p"}},
        ),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="initAdapter.mode MergeThenNew adds to the base's weights",
        accept=(
            {"spec.initAdapter": {"source": SOURCE}, "spec.quantization": "NF4"},
            {"spec.initAdapter": {"source": SOURCE, "mode": "MergeThenNew"}, "spec.quantization": "None"},
        ),
        reject=({"spec.initAdapter": {"source": SOURCE, "mode": "MergeThenNew"}, "spec.quantization": "NF4"},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="backend Unsloth trains with method SFT only",
        accept=(UNSLOTH,),
        reject=({**UNSLOTH, "spec.method": "DPO", "spec.loss": MISSING},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="backend Unsloth makes new adapters only",
        accept=(UNSLOTH,),
        reject=({**UNSLOTH, "spec.initAdapter": {"source": SOURCE}},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="backend Unsloth chooses packing, attention and compile itself",
        accept=({**UNSLOTH, "spec.plan": {"microBatchSize": 2}},),
        reject=(
            {**UNSLOTH, "spec.plan": {"packing": "Padded"}},
            {**UNSLOTH, "spec.plan": {"attention": "SDPA"}},
            {**UNSLOTH, "spec.plan": {"compile": "Disabled"}},
        ),
    ),
    RuleRow(
        node="LoRATrainingJob.spec",
        message="backend Unsloth trains in one process",
        accept=({**UNSLOTH, "spec.distributed": {"processesPerNode": 1}},),
        reject=(
            {**UNSLOTH, "spec.distributed": {"nodes": 2}},
            {**UNSLOTH, "spec.distributed": {"processesPerNode": 2}},
        ),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.evaluation",
        message="evaluation.earlyStopping needs evaluation.everySteps",
        accept=({"spec.evaluation.earlyStopping": MISSING, "spec.evaluation.everySteps": MISSING},),
        reject=({"spec.evaluation.everySteps": MISSING},),
    ),
    RuleRow(
        node="LoRATrainingJob.spec.output",
        message="a push of what Merged needs output.merged",
        accept=({"spec.output.push.0.what": "Adapter", "spec.output.merged": MISSING},),
        reject=({"spec.output.merged": MISSING},),
        variant=1,
    ),
    RuleRow(
        node="LoRATrainingJob.spec.output.push[]",
        message="secretRef has no use with pvc://",
        accept=({"spec.output.push.0.uri": "hf://o/r", "spec.output.push.0.secretRef": {"name": "s"}},),
        reject=({"spec.output.push.0.secretRef": {"name": "s"}},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="a gate with minimumImprovement needs baselineRef",
        accept=({"spec.gates": MISSING, "spec.baselineRef": MISSING},),
        reject=({"spec.baselineRef": MISSING},),
        variant=1,
    ),
    RuleRow(
        node="BenchmarkRun.spec.collect",
        message="collect needs sft or preference",
        accept=({"spec.collect": {"sft": {}}}, {"spec.collect": {"preference": {}}}),
        reject=({"spec.collect": {}},),
    ),
    RuleRow(
        node="BenchmarkRun.spec.collect.preference",
        message="minimumDifference must be above 0",
        accept=({"spec.collect.preference.minimumDifference": "0.1"},),
        reject=({"spec.collect.preference.minimumDifference": "0.0"},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="shards must be at most concurrency",
        accept=({"spec.shards": 4}, {"spec.shards": MISSING, "spec.concurrency": 1}),
        reject=({"spec.shards": 5},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="a gate's k is above attempts",
        accept=({"spec.gates.0": {"metric": "PassAtK", "k": 2, "minimum": "0"}, "spec.attempts": 2},),
        reject=({"spec.gates.0": {"metric": "PassAtK", "k": 2, "minimum": "0"}},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="a gate on Cost needs prices",
        accept=({"spec.gates.0": {"metric": "Cost", "maximum": "1"}},),
        reject=({"spec.gates.0": {"metric": "Cost", "maximum": "1"}, "spec.prices": MISSING},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="a gate on how disciplined the agent works needs discipline",
        accept=(
            {"spec.gates.0": {"metric": "TodoCompletion", "minimum": "0.95"}, "spec.discipline": {}},
            {"spec.gates.0": {"metric": "Mean", "minimum": "0.95"}, "spec.discipline": MISSING},
        ),
        reject=tuple(
            {"spec.gates.0": {"metric": metric, "minimum": "0"}, "spec.discipline": MISSING} for metric in METRICS[-6:]
        ),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="a gate on TokenChange needs baselineRef",
        accept=({"spec.gates.0": {"metric": "TokenChange", "maximum": "-0.2"}},),
        reject=({"spec.gates.0": {"metric": "TokenChange", "maximum": "-0.2"}, "spec.baselineRef": MISSING},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="passAtK names a k above attempts",
        accept=({"spec.passAtK": MISSING}, {"spec.passAtK": [1, 2], "spec.attempts": 2}),
        reject=({"spec.passAtK": [2]},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="output.uri must name a folder inside the claim",
        accept=({"spec.output.uri": "pvc://c/p"},),
        reject=({"spec.output.uri": "pvc://claim"},),
    ),
    RuleRow(
        node="BenchmarkRun.spec.suite.harbor",
        message="trialResources means nothing to environment.kind Process",
        accept=(
            {"spec.suite.harbor.environment": {"kind": "Pod"}},
            {
                "spec.suite.harbor.environment": {"kind": "Process"},
                "spec.suite.harbor.trialResources": MISSING,
                "spec.judge": MISSING,
            },
        ),
        reject=({"spec.suite.harbor.environment": {"kind": "Process"}},),
        variant=1,
    ),
    RuleRow(
        node="BenchmarkRun.spec.target",
        message="give at most one of adapter and alias",
        accept=({"spec.target.adapter": MISSING},),
        reject=({"spec.target.alias": "stable"},),
    ),
    RuleRow(
        node="BenchmarkRun.spec",
        message="judge.secretRef cannot be kept from trials of environment.kind Process",
        accept=(
            {"spec.suite.harbor.environment": {"kind": "Pod"}},
            {**PROCESS, "spec.judge.secretRef": MISSING},
            {**PROCESS, "spec.judge": MISSING},
        ),
        reject=(PROCESS,),
        variant=1,
    ),
    RuleRow(
        node="BenchmarkRun.spec.judge",
        message="give exactly one of modelServerRef and url",
        accept=({"spec.judge.secretRef": MISSING},),
        reject=(
            {"spec.judge.modelServerRef": {"name": "server"}},
            {"spec.judge.url": MISSING, "spec.judge.secretRef": MISSING, **ANY_AUTHORITY},
        ),
        variant=1,
    ),
    RuleRow(
        node="BenchmarkRun.spec.judge",
        message="secretRef belongs to url",
        accept=({"spec.judge.url": MISSING, "spec.judge.secretRef": MISSING, **BY_SERVER, **ANY_AUTHORITY},),
        reject=({"spec.judge.url": MISSING, **BY_SERVER, **ANY_AUTHORITY},),
        variant=1,
    ),
    RuleRow(
        node="BenchmarkRun.spec.judge",
        message="certificateAuthorityRef belongs to a url that begins with https://",
        accept=({**ANY_AUTHORITY, "spec.judge.url": "http://judge/v1"},),
        reject=(
            {"spec.judge.url": "http://judge/v1"},
            {"spec.judge.url": MISSING, "spec.judge.secretRef": MISSING, **BY_SERVER},
        ),
        variant=1,
    ),
    *_tool_use(),
    *_gates("BenchmarkRun.spec.gates", "spec.gates.0"),
    *_gates("ModelServer.spec.aliases[].promotion.gates", "spec.aliases.0.promotion.gates.0", variant=1),
)

IMMUTABLE: Mapping[str, Mapping[str, Any]] = {
    "ModelServer": {"model": {"source": SOURCE, "servedName": "other"}},
    "LoRATrainingJob": {
        "baseModel": {"source": SOURCE},
        "datasets": [{"name": "e", "source": SOURCE}],
        "initAdapter": {"source": {"uri": "pvc://adapters/other"}},
        "preparation": {"tooLong": "Fail"},
        "evaluation": {"share": "0.2"},
        "method": "DPO",
        "backend": "Unsloth",
        "loss": {"target": "Assistant"},
        "preference": {"beta": "0.2"},
        "lora": {"rank": 8},
        "hyperparameters": {"epochs": 2},
        "quantization": "None",
        "plan": {"microBatchSize": 2},
        "distributed": {"nodes": 3},
        "workspace": {"claimName": "other"},
        "checkpoint": {"keep": 3},
        "output": {"adapter": SOURCE},
        "image": MISSING,
        "podTemplate": MISSING,
        "stall": {"minutes": 31},
    },
    "BenchmarkRun": {
        "target": {"modelServerRef": {"name": "other"}},
        "suite": {"harbor": {"dataset": SOURCE}},
        "agent": {"name": "nop"},
        "sampling": {"seed": 1},
        "attempts": 2,
        "concurrency": 5,
        "shards": 3,
        "baselineRef": {"name": "other"},
        "gates": MISSING,
        "collect": MISSING,
        "discipline": {},
        "judge": {"url": "http://judge/v1", "model": "other"},
        "passAtK": MISSING,
        "prices": {"inputPerMillion": "1"},
        "maximumErrorRate": "0.2",
        "output": SOURCE,
        "image": MISSING,
    },
}
"""A change of each field that must not change."""

MUTABLE: Mapping[str, Mapping[str, Any]] = {
    "ModelServer": {"replicas": 2, "adapters": [], "aliases": [], "model": {"source": SOURCE, "servedName": "base"}},
    "LoRATrainingJob": {
        "suspend": True,
        "ttlSecondsAfterFinished": 1,
        "resources": MISSING,
        "activeDeadlineSeconds": 601,
        "queueName": MISSING,
    },
    "BenchmarkRun": {
        "suspend": True,
        "ttlSecondsAfterFinished": MISSING,
        "resources": MISSING,
        "activeDeadlineSeconds": 601,
        "queueName": MISSING,
    },
}
UNTIL_SUCCESS: Mapping[str, Mapping[str, Any]] = {
    "BenchmarkRun": {"resources": {"limits": {"cpu": 1}}, "activeDeadlineSeconds": MISSING, "queueName": "other"},
    "LoRATrainingJob": {"resources": {"limits": {"cpu": 1}}, "activeDeadlineSeconds": MISSING, "queueName": "other"},
}
"""For each field that may change until its object is Complete, another value."""


def base(row: RuleRow) -> Object:
    """Return the object that a row changes."""
    return VARIANTS[row.kind][row.variant]
