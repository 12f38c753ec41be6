"""Every constraint of the three kinds, written down a second time: the schema must agree with this table.

A row is a schema path (`Kind.spec.adapters[].name`) with what it allows. `test_table_is_complete` fails when the
generated schema has a constraint without a row, or a row has no constraint.
"""

from collections.abc import Mapping
from typing import Any

from integration.constraints import tooluse
from integration.constraints.objects import DIGEST

METRICS = (
    *("Mean", "StrictMean", "Coverage", "PassAtK", "ErrorRate", "TimeoutRate", "TruncationRate", "OverflowRate"),
    *("TokensPerTrial", "Cost", "DurationSeconds"),
    *("TodoCompletion", "ExtraTokens", "PhaseAdherence", "Success", "TokensPerTask", "TokenChange"),
)
BR, LT, MS = "BenchmarkRun", "LoRATrainingJob", "ModelServer"

ENUMS: Mapping[str, tuple[Any, ...]] = {
    **tooluse.ENUMS,
    f"{BR}.spec.agent.name": ("terminus-2", "whetstone", "oracle", "nop"),
    f"{BR}.spec.suite.harbor.environment.kind": ("Pod", "Process"),
    f"{BR}.spec.suite.harbor.environment.networkLimits": ("Enforced", "BestEffort"),
    f"{BR}.spec.suite.harbor.oracle.withoutSolution": ("Run", "Exclude"),
    f"{BR}.spec.suite.harbor.refused": ("Fail", "Exclude"),
    f"{BR}.spec.gates[].metric": METRICS,
    f"{BR}.spec.collect.sft.per": ("Episode", "Turn"),
    f"{LT}.spec.datasets[].benchmarkRunRef.kind": ("SFT", "Preference"),
    f"{BR}.spec.gates[].confidence": ("0.9", "0.95", "0.99"),
    f"{BR}.status.comparison.verdict": ("Better", "Worse", "Inconclusive", "NotComparable"),
    f"{LT}.spec.backend": ("TRL", "Unsloth"),
    f"{LT}.spec.distributed.strategy": ("Auto", "DDP", "FSDP", "ZeRO2", "ZeRO3"),
    f"{LT}.spec.initAdapter.mode": ("Continue", "MergeThenNew"),
    f"{LT}.spec.loss.target": ("Assistant", "LastTurn", "All"),
    f"{LT}.spec.output.push[].what": ("Adapter", "Merged"),
    f"{LT}.spec.method": ("SFT", "DPO"),
    f"{LT}.spec.preference.granularity": ("Step", "Trajectory"),
    f"{LT}.spec.preference.losses[].type": (
        *("Sigmoid", "SigmoidNorm", "Hinge", "Ipo", "ApoZero", "ApoDown"),
        *("BcoPair", "NcaPair", "SppoHard", "Sft"),
    ),
    f"{LT}.spec.preparation.tooLong": ("Fail", "Drop", "Truncate"),
    f"{LT}.spec.quantization": ("None", "NF4", "Int8"),
    f"{LT}.spec.plan.attention": ("Auto", "SDPA", "FlashAttention2", "Eager"),
    f"{LT}.spec.plan.compile": ("Auto", "Enabled", "Disabled"),
    f"{LT}.spec.plan.gradientCheckpointing": ("Auto", "Enabled", "Disabled"),
    f"{LT}.spec.plan.packing": ("Auto", "PaddingFree", "Padded"),
    f"{LT}.status.plan.packing": ("Auto", "PaddingFree", "Padded"),
    f"{LT}.spec.workspace.claimTemplate.accessModes[]": ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"),
    f"{MS}.spec.aliases[].promotion.gates[].metric": METRICS,
    f"{MS}.spec.aliases[].promotion.gates[].confidence": ("0.9", "0.95", "0.99"),
    f"{MS}.spec.engine.dtype": ("Auto", "Float32", "BFloat16", "Float16"),
    f"{MS}.spec.engine.quantization": (
        *("Fp8", "Awq", "AwqMarlin", "Gptq", "GptqMarlin"),
        *("CompressedTensors", "ModelOpt"),
    ),
    f"{MS}.spec.adapterCapacity.headroom.rank": (1, 8, 16, 32, 64, 128, 256, 320, 512),
    f"{MS}.spec.adapterCapacity.maxRank": ("Auto", 1, 8, 16, 32, 64, 128, 256, 320, 512),
}

RANGES: Mapping[str, tuple[int, int]] = {
    **tooluse.RANGES,
    f"{BR}.spec.activeDeadlineSeconds": (1, 31536000),
    f"{BR}.spec.agent.budget.runTokens": (1, 1_000_000_000_000),
    f"{BR}.spec.agent.budget.tokens": (1, 1_000_000_000),
    f"{BR}.spec.agent.budget.wallClockSeconds": (1, 604800),
    f"{BR}.spec.agent.parameters.commandSeconds": (1, 86400),
    f"{BR}.spec.agent.parameters.contextTokens": (16, 4194304),
    f"{BR}.spec.agent.parameters.historyTurns": (1, 1000),
    f"{BR}.spec.agent.parameters.maxTokens": (1, 131072),
    f"{BR}.spec.agent.parameters.maxTurns": (1, 1000),
    f"{BR}.spec.agent.parameters.observationCharacters": (1, 1000000),
    f"{BR}.spec.agent.parameters.repeatedCommands": (2, 1000),
    f"{BR}.spec.attempts": (1, 100),
    f"{BR}.spec.concurrency": (1, 256),
    f"{BR}.spec.shards": (1, 64),
    f"{BR}.spec.passAtK[]": (1, 100),
    f"{BR}.spec.collect.sft.trialsPerTask": (1, 100),
    f"{BR}.spec.collect.preference.pairsPerTask": (1, 100),
    f"{BR}.spec.judge.maximumTokens": (1, 1_000_000_000_000),
    f"{BR}.spec.gates[].k": (1, 100),
    f"{MS}.spec.aliases[].promotion.gates[].k": (1, 100),
    f"{BR}.spec.sampling.seed": (0, 4294967295),
    f"{BR}.spec.suite.harbor.environment.queueSeconds": (1, 604800),
    f"{BR}.spec.suite.harbor.environment.startSeconds": (1, 86400),
    f"{BR}.spec.suite.harbor.tasks.limit": (1, 100000),
    f"{BR}.spec.ttlSecondsAfterFinished": (0, 31536000),
    f"{LT}.spec.activeDeadlineSeconds": (1, 31536000),
    f"{LT}.spec.checkpoint.everySteps": (1, 1000000),
    f"{LT}.spec.checkpoint.keep": (1, 100),
    f"{LT}.spec.distributed.nodes": (1, 64),
    f"{LT}.spec.distributed.processesPerNode": (1, 16),
    f"{LT}.spec.datasets[].filter.maximumTurns": (1, 100000),
    f"{LT}.spec.preparation.minimumRows": (1, 1000000000),
    f"{LT}.spec.evaluation.earlyStopping.patience": (1, 1000),
    f"{LT}.spec.evaluation.everySteps": (1, 1000000),
    f"{LT}.spec.hyperparameters.batchSize": (1, 65536),
    f"{LT}.spec.hyperparameters.epochs": (1, 1000),
    f"{LT}.spec.hyperparameters.maxLength": (16, 4194304),
    f"{LT}.spec.hyperparameters.maxSteps": (1, 10000000),
    f"{LT}.spec.plan.microBatchSize": (1, 65536),
    f"{LT}.spec.hyperparameters.seed": (0, 4294967295),
    f"{LT}.spec.lora.alpha": (1, 4096),
    f"{LT}.spec.lora.rank": (1, 512),
    f"{LT}.spec.stall.minutes": (1, 10080),
    f"{LT}.spec.ttlSecondsAfterFinished": (0, 31536000),
    f"{MS}.spec.adapterCapacity.headroom.loras": (0, 64),
    f"{MS}.spec.adapterCapacity.maxCpuLoras": (1, 128),
    f"{MS}.spec.adapterCapacity.maxLoras": (1, 64),
    f"{MS}.spec.aliases[].promotion.minimumTasks": (1, 100000),
    f"{MS}.spec.aliases[].targets[].weight": (0, 1000),
    f"{MS}.spec.engine.maxModelLength": (16, 4194304),
    f"{MS}.spec.engine.parallelism.data": (1, 64),
    f"{MS}.spec.engine.parallelism.pipeline": (1, 64),
    f"{MS}.spec.engine.parallelism.tensor": (1, 64),
    f"{MS}.spec.model.defaultSampling.maxTokens": (1, 4194304),
    f"{MS}.spec.replicas": (0, 1000),
    f"{MS}.spec.startup.timeoutSeconds": (30, 86400),
    f"{MS}.spec.drain.seconds": (0, 3600),
    f"{MS}.spec.limits.concurrentRequests": (1, 100000),
    f"{MS}.spec.limits.requestBytes": (1024, 1073741824),
}

ITEMS: Mapping[str, tuple[int, int]] = {
    **tooluse.ITEMS,
    f"{LT}.spec.workspace.claimTemplate.accessModes": (1, 3),
    f"{BR}.spec.gates": (0, 16),
    f"{BR}.spec.passAtK": (0, 16),
    f"{BR}.spec.discipline.done": (0, 32),
    f"{BR}.spec.discipline.finish": (0, 32),
    f"{BR}.spec.discipline.nextPhase": (0, 32),
    f"{BR}.status.results.rungs": (0, 8),
    f"{BR}.status.results.passAtK": (0, 16),
    f"{BR}.status.results.furtherIntervals": (0, 4),
    f"{BR}.status.comparison.furtherIntervals": (0, 4),
    f"{BR}.spec.suite.harbor.tasks.exclude": (0, 1000),
    f"{BR}.spec.suite.harbor.tasks.include": (0, 1000),
    f"{BR}.status.conditions": (0, 32),
    f"{BR}.status.results.oracle.names": (0, 8),
    f"{BR}.status.results.refused": (0, 16),
    f"{BR}.status.results.refused[].names": (0, 8),
    f"{LT}.spec.datasets": (1, 16),
    f"{LT}.spec.distributed.env": (0, 64),
    f"{LT}.spec.lora.targetModules": (1, 64),
    f"{LT}.spec.output.push": (1, 4),
    f"{LT}.spec.preference.losses": (1, 4),
    f"{LT}.status.conditions": (0, 32),
    f"{LT}.status.pushes": (0, 4),
    f"{LT}.status.warnings": (0, 8),
    f"{LT}.status.dataset.advice": (0, 4),
    f"{LT}.status.estimate.basis": (0, 8),
    f"{LT}.status.cost.pods": (0, 64),
    f"{MS}.spec.adapterStores": (0, 16),
    f"{MS}.spec.adapters": (0, 64),
    f"{MS}.spec.aliases": (0, 32),
    f"{MS}.spec.aliases[].promotion.gates": (1, 16),
    f"{MS}.spec.aliases[].targets": (1, 8),
    f"{MS}.spec.apiKeys": (1, 64),
    f"{MS}.spec.apiKeys[].models": (1, 64),
    f"{MS}.spec.engine.env": (0, 64),
    f"{MS}.spec.engine.extraArgs": (0, 64),
    f"{MS}.status.adapters": (0, 64),
    f"{MS}.status.aliases": (0, 32),
    f"{MS}.status.aliases[].history": (0, 10),
    f"{MS}.status.aliases[].targets": (0, 8),
    f"{MS}.status.conditions": (0, 32),
    f"{MS}.status.failures": (0, 10),
    f"{MS}.status.sources": (0, 65),
}

MEMBERS: Mapping[str, tuple[int, int]] = {
    f"{BR}.spec.discipline.edits": (0, 32),
    f"{BR}.spec.discipline.reads": (0, 32),
    f"{BR}.spec.discipline.writes": (0, 32),
    f"{BR}.spec.resources.limits": (0, 16),
    f"{BR}.spec.resources.requests": (0, 16),
    f"{BR}.spec.suite.harbor.images.map": (0, 1000),
    f"{BR}.spec.suite.harbor.trialResources.limits": (0, 16),
    f"{BR}.spec.suite.harbor.trialResources.requests": (0, 16),
    f"{LT}.spec.resources.limits": (0, 16),
    f"{LT}.spec.resources.requests": (0, 16),
    f"{LT}.status.metrics": (0, 32),
    f"{MS}.spec.adapterSelector.matchLabels": (1, 16),
    f"{MS}.spec.aliases[].promotion.benchmarkSelector.matchLabels": (1, 16),
    f"{BR}.spec.agent.options": (0, 64),
    f"{LT}.spec.podTemplate.metadata.annotations": (0, 32),
    f"{MS}.spec.podTemplate.metadata.annotations": (0, 32),
    f"{LT}.spec.podTemplate.metadata.labels": (0, 32),
    f"{MS}.spec.podTemplate.metadata.labels": (0, 32),
    f"{LT}.spec.podTemplate.spec": (0, 32),
    f"{MS}.spec.podTemplate.spec": (0, 32),
    f"{MS}.spec.resources.limits": (0, 16),
    f"{MS}.spec.resources.requests": (0, 16),
}

LENGTHS: Mapping[str, tuple[int, int]] = {
    **tooluse.LENGTHS,
    f"{BR}.spec.agent.configMapRef.name": (1, 253),
    f"{BR}.spec.suite.harbor.dataset.configMapRef.name": (1, 253),
    f"{BR}.spec.agent.options.*": (0, 4096),
    f"{BR}.spec.agent.parameters.systemPrompt": (1, 16384),
    **{f"{BR}.spec.discipline.{kind}[]": (1, 128) for kind in ("done", "finish", "nextPhase")},
    **{f"{BR}.spec.discipline.edits.*.{argument}": (1, 128) for argument in ("path", "old", "new")},
    **{f"{BR}.spec.discipline.writes.*.{argument}": (1, 128) for argument in ("path", "content")},
    f"{BR}.spec.discipline.reads.*.path": (1, 128),
    f"{BR}.status.results.rungs[].rung": (0, 32),
    f"{BR}.spec.image": (1, 512),
    f"{BR}.spec.judge.model": (1, 253),
    f"{BR}.status.judged.uri": (0, 512),
    f"{BR}.status.judged.judge": (0, 71),
    f"{BR}.status.judged.model": (0, 253),
    f"{BR}.status.judged.stopped": (0, 512),
    f"{BR}.spec.suite.harbor.tasks.exclude[]": (1, 253),
    f"{BR}.spec.suite.harbor.tasks.include[]": (1, 253),
    f"{LT}.spec.datasets[].configMapRef.key": (1, 253),
    f"{LT}.spec.datasets[].configMapRef.name": (1, 253),
    f"{LT}.spec.distributed.env[].value": (0, 4096),
    f"{LT}.spec.image": (1, 512),
    f"{LT}.spec.lora.targetModules[]": (1, 128),
    f"{LT}.spec.workspace.claimName": (1, 253),
    f"{LT}.spec.workspace.claimTemplate.storageClassName": (1, 253),
    f"{MS}.spec.adapterStores[].claimName": (1, 253),
    f"{MS}.spec.model.cache.claimName": (1, 253),
    f"{MS}.spec.adapterSelector.matchLabels.*": (0, 63),
    f"{MS}.spec.aliases[].promotion.benchmarkSelector.matchLabels.*": (0, 63),
    f"{MS}.spec.engine.chatTemplate.configMapRef.key": (1, 253),
    f"{MS}.spec.engine.chatTemplate.configMapRef.name": (1, 253),
    f"{MS}.spec.engine.chatTemplate.inline": (1, 32768),
    f"{MS}.spec.engine.env[].value": (0, 4096),
    f"{MS}.spec.engine.extraArgs[]": (0, 512),
    f"{MS}.spec.engine.image": (1, 512),
    f"{LT}.spec.podTemplate.metadata.annotations.*": (0, 4096),
    f"{MS}.spec.podTemplate.metadata.annotations.*": (0, 4096),
    f"{LT}.spec.podTemplate.metadata.labels.*": (0, 63),
    f"{MS}.spec.podTemplate.metadata.labels.*": (0, 63),
    f"{BR}.status.comparison.baseline": (0, 63),
    f"{BR}.status.comparison.message": (0, 1024),
    f"{BR}.status.collected.sft.uri": (0, 512),
    f"{BR}.status.collected.sft.digest": (0, 71),
    f"{BR}.status.collected.preference.uri": (0, 512),
    f"{BR}.status.collected.preference.digest": (0, 71),
    f"{BR}.status.finishedAt": (0, 64),
    f"{BR}.status.handledRetry": (0, 256),
    f"{BR}.status.progress.phase": (0, 32),
    f"{BR}.status.progress.updatedAt": (0, 64),
    f"{BR}.status.recipeDigest": (0, 71),
    f"{BR}.status.results.oracle.names[]": (0, 253),
    f"{BR}.status.results.oracle.uri": (0, 512),
    f"{BR}.status.results.refused[].names[]": (0, 253),
    f"{BR}.status.results.refused[].reason": (0, 64),
    f"{BR}.status.results.uri": (0, 512),
    f"{BR}.status.startedAt": (0, 64),
    f"{BR}.status.suiteDigest": (0, 71),
    f"{BR}.status.target.engine.chatTemplate": (0, 71),
    f"{BR}.status.target.engine.image": (0, 512),
    f"{BR}.status.target.engine.settings": (0, 71),
    f"{BR}.status.target.adapter": (0, 64),
    f"{BR}.status.target.digest": (0, 71),
    f"{BR}.status.target.servedName": (0, 64),
    f"{LT}.status.adapter.digest": (0, 71),
    f"{LT}.status.adapter.publishedAt": (0, 64),
    f"{LT}.status.adapter.uri": (0, 512),
    f"{LT}.status.dataset.advice[]": (0, 256),
    f"{LT}.status.dataset.recipeDigest": (0, 71),
    f"{LT}.status.estimate.basis[].name": (0, 32),
    f"{LT}.status.cost.basis": (0, 256),
    f"{LT}.status.cost.countedAt": (0, 64),
    f"{LT}.status.cost.currency": (0, 16),
    f"{LT}.status.cost.pods[].name": (0, 253),
    f"{LT}.status.cost.resource": (0, 253),
    f"{LT}.status.estimate.least": (0, 16),
    f"{LT}.status.estimate.memory": (0, 16),
    f"{LT}.status.estimate.plan": (0, 256),
    f"{LT}.status.plan.attention": (0, 64),
    f"{LT}.status.plan.reason": (0, 1024),
    f"{LT}.status.finishedAt": (0, 64),
    f"{LT}.status.handledRetry": (0, 256),
    f"{LT}.status.merged.digest": (0, 71),
    f"{LT}.status.merged.uri": (0, 512),
    f"{LT}.status.metrics.*": (0, 32),
    f"{LT}.status.progress.phase": (0, 32),
    f"{LT}.status.pushes[].digest": (0, 71),
    f"{LT}.status.warnings[]": (0, 512),
    f"{LT}.status.pushes[].name": (0, 40),
    f"{LT}.status.pushes[].uri": (0, 640),
    f"{LT}.status.progress.updatedAt": (0, 64),
    f"{LT}.status.startedAt": (0, 64),
    f"{MS}.status.model.digest": (0, 71),
    f"{MS}.status.model.source": (0, 512),
    f"{MS}.status.model.trainingJob": (0, 253),
    f"{MS}.status.adapters[].digest": (0, 71),
    f"{MS}.status.adapters[].effectiveSince": (0, 64),
    f"{MS}.status.adapters[].message": (0, 1024),
    f"{MS}.status.adapters[].name": (0, 64),
    f"{MS}.status.adapters[].reason": (0, 64),
    f"{MS}.status.adapters[].servedName": (0, 64),
    f"{MS}.status.adapters[].source": (0, 512),
    f"{MS}.status.aliases[].adapter": (0, 64),
    f"{MS}.status.aliases[].benchmarkRun": (0, 63),
    f"{MS}.status.aliases[].digest": (0, 71),
    f"{MS}.status.aliases[].history[].benchmarkRun": (0, 63),
    f"{MS}.status.aliases[].history[].digest": (0, 71),
    f"{MS}.status.aliases[].history[].reason": (0, 64),
    f"{MS}.status.aliases[].history[].servedName": (0, 64),
    f"{MS}.status.aliases[].history[].time": (0, 64),
    f"{MS}.status.aliases[].name": (0, 64),
    f"{MS}.status.aliases[].previous": (0, 64),
    f"{MS}.status.aliases[].servedName": (0, 64),
    f"{MS}.status.aliases[].since": (0, 64),
    f"{MS}.status.aliases[].targets[].adapter": (0, 64),
    f"{MS}.status.aliases[].targets[].digest": (0, 71),
    f"{MS}.status.aliases[].targets[].servedName": (0, 64),
    f"{MS}.status.capacity.memory.adapters": (0, 16),
    f"{MS}.status.capacity.memory.cachePerRequest": (0, 16),
    f"{MS}.status.capacity.memory.least": (0, 16),
    f"{MS}.status.capacity.memory.weights": (0, 16),
    f"{MS}.status.capacity.memory.work": (0, 16),
    f"{MS}.status.capacity.message": (0, 1024),
    f"{MS}.status.failures[].adapter": (0, 64),
    f"{MS}.status.failures[].message": (0, 1024),
    f"{MS}.status.failures[].pod": (0, 253),
    f"{MS}.status.failures[].reason": (0, 64),
    f"{MS}.status.selector": (0, 512),
    f"{MS}.status.sources[].digest": (0, 71),
    f"{MS}.status.sources[].resolved": (0, 512),
    f"{MS}.status.sources[].uri": (0, 512),
    f"{MS}.status.url": (0, 512),
} | {
    f"{kind}.status.conditions[].{field}": (0, length)
    for kind in (BR, LT, MS)
    for field, length in (
        ("type", 316),
        ("status", 16),
        ("reason", 1024),
        ("message", 32768),
        ("lastTransitionTime", 64),
    )
}


class Format:
    """What a patterned text looks like.

    Args:
        shortest: Least length, 0 for none; a shorter text is refused.
        longest: Greatest length.
        accept: Texts that pass, the longest among them.
        reject: Texts that the pattern refuses.
    """

    def __init__(self, shortest: int, longest: int, *, accept: tuple[str, ...], reject: tuple[str, ...]) -> None:
        self.shortest = shortest
        self.longest = longest
        self.accept = accept
        self.reject = reject


OBJECT_NAME = Format(1, 63, accept=("a", "a-1", "0", "a" * 63), reject=("A", "-a", "a-", "a.b", "a_b", "a b"))
WEB_URL = Format(
    0,
    512,
    accept=("http://judge:8000/v1", "https://a.example.com", "https://a/" + "b" * 502),
    reject=("judge/v1", "ftp://a/v1", "http://", "http:///v1", "http://a b/v1", "https://a/v 1"),
)
VOLUME_NAME = Format(1, 40, accept=("a", "a-1", "a" * 40), reject=("A", "-a", "a-", "a.b", "a/b"))
SERVED_NAME = Format(
    1, 54, accept=("q", "Qwen2.5-0.5B_x", "a" * 54), reject=("-a", "a-", ".a", "org/model", "a b", "ä", "a:b")
)
URI = Format(
    7,
    512,
    accept=("pvc://c/p", "pvc://my-claim.v1/a/B_c.d-e", "pvc://c/" + "a" * 504),
    reject=(
        "hf://org/model",
        "/mnt/data",
        "pvc://C/p",
        "pvc://c/p/",
        "pvc://c//p",
        "pvc://c/p q",
        "PVC://c/p",
    ),
)
SECRET_NAME = Format(
    1, 253, accept=("a", "a-1.b", "0", "a" * 253), reject=("A", "-a", "a-", "a..b", ".a", "a_b", "a/b", "a b")
)
QUEUE_NAME = Format(
    1, 63, accept=("a", "a-1.b", "0", "a" * 63), reject=("A", "-a", "a-", "a..b", ".a", "a_b", "a/b", "a b")
)
SUB_PATH = Format(0, 253, accept=("models", "a.b/C_d-1", "a" * 253), reject=("", "/models", "models/", "a//b", "a b"))
SECRET_KEY = Format(1, 253, accept=("a", "A.b_c-d", "..x", "a" * 253), reject=("a/b", "a b", "a:b"))
ANY_URI = Format(
    7,
    512,
    accept=(
        "hf://org/My-model_1.0@main",
        "hf://org/model@" + "0" * 40,
        "hf://org/model@refs/pr/1",
        "s3://my-bucket/a/B_c.d-e=f",
        "https://example.com:8443/a/b~c%20d",
        "oci://registry.example.com:5000/team/a@sha256:" + "0" * 64,
        *URI.accept,
    ),
    reject=(
        *(uri for uri in URI.reject if not uri.startswith("hf:")),
        "hf://org/model",
        "hf://model@main",
        "hf://org/model@",
        "hf://org/model@main model",
        "s3://bucket",
        "s3://Bucket/a",
        "s3://bucket/a/",
        "http://example.com/a",
        "https://example.com",
        "https://user@example.com/a",
        "https://example.com/a?b=c",
        "oci://registry/team/a:v1",
        "oci://registry/team/a@sha256:0",
        "oci://registry@sha256:" + "0" * 64,
        "gs://bucket/a",
        "file:///etc/passwd",
    ),
)
MODEL_URI = Format(
    7,
    512,
    accept=tuple(uri for uri in ANY_URI.accept if not uri.startswith(("s3:", "https:"))),
    reject=ANY_URI.reject,
)
"""Those of the others need a digest."""
PUSH_URI = Format(
    7,
    512,
    accept=(
        "pvc://my-claim.v1/a/B_c.d-e",
        "s3://my-bucket/a/B_c.d-e=f",
        "oci://registry.example.com:5000/team/a",
        "oci://localhost:5000/a:v1.0",
        "hf://org/My-model_1.0",
        "pvc://c/" + "a" * 504,
    ),
    reject=(
        "pvc://claim",
        "pvc://c/p/",
        "s3://bucket",
        "https://example.com/a",
        "oci://registry.example.com/a@sha256:" + "0" * 64,
        "oci://registry.example.com/a:.v",
        "oci://registry.example.com",
        "hf://model",
        "hf://org/model@main",
    ),
)
HUB_ID = Format(
    3,
    193,
    accept=("o/m", "HuggingFaceTB/SmolLM2-135M", "0/a.b_c-d", "a" * 96 + "/" + "b" * 96),
    reject=("model", "hf://o/m", "o/m@main", "o/m/x", "-o/m", "o/.m", "o/ m", "/model", "owner/"),
)
ARCHIVE_KEY = Format(
    0,
    253,
    accept=("a.tar", "a-b_c.d.tar.gz", "a.tgz", "a.zip", "a.parquet", "a" * 249 + ".tar"),
    reject=("", "a", "tar", ".tgz", ".zip", "a.7z", "a.tar.bz2", "a/b.tar", "a b.tar", "a.tar "),
)
FOLDER_URI = Format(
    7,
    512,
    accept=(
        "hf://datasets/org/My-tasks_1.0@main",
        "hf://datasets/org/tasks@" + "0" * 40 + "/a/set.parquet",
        *(uri for uri in ANY_URI.accept if not uri.startswith("hf:")),
    ),
    reject=(
        *(uri for uri in ANY_URI.reject if not uri.startswith("hf:")),
        "hf://org/model@main",
        "hf://datasets/org/tasks",
        "hf://datasets/org/tasks@main/",
        "hf://datasets/tasks@main",
    ),
)
FILE_URI = Format(
    7,
    512,
    accept=(
        "hf://datasets/org/My-rows_1.0@main/data/train.jsonl",
        "hf://datasets/org/rows@" + "0" * 40 + "/train.parquet",
        *(uri for uri in ANY_URI.accept if uri.startswith(("s3:", "https:"))),
        "s3://bucket/" + "a" * 500,
    ),
    reject=(
        *(uri for uri in ANY_URI.reject if not uri.startswith("hf:")),
        "hf://org/model@main",
        "hf://datasets/org/rows@main",
        "hf://datasets/org/rows/train.jsonl",
        "hf://datasets/rows@main/train.jsonl",
        "oci://registry.example.com/team/a@sha256:" + "0" * 64,
    ),
)
"""Those in claims take no Secret, so they are tried in the rules."""
DECIMAL = Format(
    0,
    24,
    accept=("0", "0.5", "2e-4", "1E+3", "1" * 24),
    reject=("", "-1", "+1", ".5", "1.", "one", "1,5", "0x1", "inf", "nan"),
)
POSITIVE = Format(0, 24, accept=("0.5", "2e-4", "1E+3", "1" * 24), reject=DECIMAL.reject)
SAMPLED = Format(0, 24, accept=("0.5", "2e-1", "1." + "0" * 22), reject=DECIMAL.reject)
SIGNED_DECIMAL = Format(
    0, 24, accept=("0", "-0.5", "2e-4", "-1e-9", "1" * 24), reject=("", "--1", "+1", ".5", "one", "nan")
)
QUANTITY = Format(
    0, 32, accept=("1", "500m", "0.5", "4Gi", "2e3", "1" * 32), reject=("", "-1", "4GiB", "4 Gi", "one", "4gb")
)
SHARE = Format(
    0, 8, accept=("0.5", "0.05", "1", "1.0", "0.923456"), reject=("", "0", "0.0", "1.5", ".5", "0.", "90", "0.9 ", "-1")
)
OPEN_SHARE = Format(0, 8, accept=("0.5", "0.05", "0.999999"), reject=("", "0", "0.0", "1", "1.0", ".5", "0.", "5e-1"))
WEIGHT = Format(
    1, 8, accept=("1", "2", "0.5", "99.9", "10", "0.000001"), reject=("0", "0.0", "100", "01", ".5", "1.", "-1", "1e1")
)
AUTO = Format(0, 4, accept=("Auto",), reject=("", "auto", "4", "Aut", "None"))
DEVICE_MEMORY = Format(
    1,
    16,
    accept=("80Gi", "40.5Gi", "81920Mi", "24G", "900M", "1234567890123.5M"),
    reject=("0Gi", "80", "80GB", "80 Gi", "-8Gi", "8Ti", ".5Gi"),
)
PARSER = Format(1, 64, accept=("h", "qwen3_coder", "a-b", "a" * 64), reject=("A", "_a", "-a", "a b", "a.b", "a/b"))
METRIC = Format(1, 64, accept=("evalLoss", "l", "a" * 64), reject=("EvalLoss", "eval_loss", "0a", "a b", "a/b"))
VARIABLE = Format(1, 128, accept=("N", "OMP_NUM_THREADS", "_n0", "A" * 128), reject=("0A", "A-B", "A.B", "A B", "A=B"))
COMMUNICATION = Format(
    1,
    128,
    accept=("NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "GLOO_SOCKET_IFNAME", "UCX_TLS", "NCCL_" + "A" * 123),
    reject=("RANK", "PYTHONPATH", "nccl_debug", "NCCL", "NCCL_", "XNCCL_DEBUG", "NCCL_A-B"),
)
IMAGE_PREFIX = Format(
    1,
    255,
    accept=("registry.example.com", "registry.example.com:5000/team/mirror", "127.0.0.1:5000", "a" * 255),
    reject=("https://registry", "registry/", "registry/Mirror", "/mirror", "registry/mirror:1", "registry mirror"),
)
IMAGE_REFERENCE = Format(
    1,
    512,
    accept=("debian", "debian:13", "registry.example.com:5000/team/a:v1", "a/b@sha256:" + "0" * 64, "a" * 512),
    reject=("/a", "docker://a b", "a@sha256:0", "a;b", "a\nb", "a@b"),
)
CONTENT_DIGEST = Format(
    0, 71, accept=(DIGEST, "sha256:" + "af09" * 16), reject=("", "0" * 64, "sha256:" + "A" * 64, "sha256:" + "0" * 63)
)

IMPORT_PATH = Format(
    0,
    253,
    accept=("m:C", "a.b_c.d:_C1", "m:" + "C" * 251),
    reject=("", "m", "m:", ":C", "m/a:C", "m:C.D", "1m:C", "m: C"),
)

PROBABILITY = Format(
    0, 8, accept=("0", "0.5", "1", "1.0", "0.923456"), reject=("", "1.5", ".5", "0.", "-1", "2", "0,5", "5e-1")
)
JSON_FILE = Format(
    1,
    253,
    accept=("t.json", "Train_1-a.v2.json", "a" * 248 + ".json"),
    reject=("train", "a/b.json", "../t.json", ".json", "t.jsonl", "t .json"),
)
INDEX_PREFIX = Format(0, 100, accept=("a", "team_1-a.b-", "a" * 100), reject=("", "A", "-a", "_a", "a/b", "a*"))
HEADER = Format(1, 100, accept=("X", "X-Api-Key", "a" * 100), reject=("X Y", "X:", "X_Y", "X\n"))

FORMATS: Mapping[str, Format] = {
    f"{tooluse.SUITE}.environment.uri": FOLDER_URI,
    f"{tooluse.SUITE}.environment.digest": CONTENT_DIGEST,
    f"{tooluse.SUITE}.environment.secretRef.name": SECRET_NAME,
    f"{tooluse.SUITE}.instances.file": JSON_FILE,
    f"{tooluse.SUITE}.api.url": WEB_URL,
    f"{tooluse.SUITE}.api.secretRef.name": SECRET_NAME,
    f"{tooluse.SUITE}.api.secretRef.key": SECRET_KEY,
    f"{tooluse.SUITE}.api.header": HEADER,
    f"{tooluse.SUITE}.retriever.elasticsearch.url": WEB_URL,
    f"{tooluse.SUITE}.retriever.elasticsearch.secretRef.name": SECRET_NAME,
    f"{tooluse.SUITE}.retriever.elasticsearch.secretRef.key": SECRET_KEY,
    f"{tooluse.SUITE}.retriever.elasticsearch.indexPrefix": INDEX_PREFIX,
    f"{tooluse.SUITE}.expert.epsilon": PROBABILITY,
    **{
        f"{tooluse.SUITE}.{model}.{field}": form
        for model in ("scorer.judge", "overseer", "expert.witness")
        for field, form in (
            ("modelServerRef.name", OBJECT_NAME),
            ("url", WEB_URL),
            ("secretRef.name", SECRET_NAME),
            ("secretRef.key", SECRET_KEY),
        )
    },
    f"{BR}.spec.agent.importPath": IMPORT_PATH,
    f"{BR}.spec.agent.source.digest": CONTENT_DIGEST,
    f"{BR}.spec.agent.source.secretRef.name": SECRET_NAME,
    f"{BR}.spec.agent.source.uri": FOLDER_URI,
    f"{BR}.spec.baselineRef.name": OBJECT_NAME,
    f"{LT}.spec.datasets[].benchmarkRunRef.name": OBJECT_NAME,
    f"{BR}.spec.collect.sft.minimumReward": SIGNED_DECIMAL,
    f"{BR}.spec.collect.preference.minimumDifference": POSITIVE,
    f"{BR}.spec.gates[].minimum": SIGNED_DECIMAL,
    f"{BR}.spec.gates[].maximum": SIGNED_DECIMAL,
    f"{BR}.spec.judge.modelServerRef.name": OBJECT_NAME,
    f"{BR}.spec.judge.url": WEB_URL,
    f"{BR}.spec.judge.secretRef.name": SECRET_NAME,
    f"{BR}.spec.judge.secretRef.key": SECRET_KEY,
    f"{BR}.spec.judge.certificateAuthorityRef.name": SECRET_NAME,
    f"{BR}.spec.judge.certificateAuthorityRef.key": SECRET_KEY,
    f"{BR}.status.judged.reasoning": DECIMAL,
    f"{BR}.status.judged.completeness": DECIMAL,
    f"{BR}.status.judged.agreement.agreement": DECIMAL,
    f"{BR}.status.judged.agreement.kappa": SIGNED_DECIMAL,
    f"{BR}.spec.prices.inputPerMillion": DECIMAL,
    f"{BR}.spec.prices.outputPerMillion": DECIMAL,
    f"{BR}.spec.gates[].minimumImprovement": DECIMAL,
    f"{BR}.spec.maximumErrorRate": DECIMAL,
    f"{BR}.spec.output.uri": URI,
    f"{BR}.spec.resources.limits.*": QUANTITY,
    f"{LT}.spec.workspace.claimTemplate.size": QUANTITY,
    f"{BR}.spec.resources.requests.*": QUANTITY,
    f"{BR}.spec.sampling.temperature": DECIMAL,
    f"{BR}.spec.sampling.topP": SAMPLED,
    f"{BR}.spec.suite.harbor.dataset.configMapRef.key": ARCHIVE_KEY,
    f"{BR}.spec.suite.harbor.dataset.digest": CONTENT_DIGEST,
    f"{BR}.spec.suite.harbor.dataset.secretRef.name": SECRET_NAME,
    f"{BR}.spec.suite.harbor.dataset.uri": FOLDER_URI,
    f"{BR}.spec.suite.harbor.images.map.*": IMAGE_REFERENCE,
    f"{BR}.spec.suite.harbor.oracle.minimumReward": SIGNED_DECIMAL,
    f"{BR}.spec.suite.harbor.oracle.verdicts.uri": URI,
    f"{BR}.spec.suite.harbor.images.prefix": IMAGE_PREFIX,
    f"{BR}.spec.suite.harbor.trialResources.limits.*": QUANTITY,
    f"{BR}.spec.suite.harbor.trialResources.requests.*": QUANTITY,
    f"{BR}.spec.target.adapter": SERVED_NAME,
    f"{BR}.spec.target.alias": SERVED_NAME,
    f"{BR}.spec.target.modelServerRef.name": OBJECT_NAME,
    f"{BR}.status.comparison.difference": SIGNED_DECIMAL,
    f"{BR}.status.comparison.interval.confidence": DECIMAL,
    f"{BR}.status.comparison.interval.high": SIGNED_DECIMAL,
    f"{BR}.status.comparison.interval.low": SIGNED_DECIMAL,
    f"{BR}.status.comparison.minimumDetectable": DECIMAL,
    f"{BR}.status.results.furtherIntervals[].confidence": DECIMAL,
    f"{BR}.status.results.furtherIntervals[].high": SIGNED_DECIMAL,
    f"{BR}.status.results.furtherIntervals[].low": SIGNED_DECIMAL,
    f"{BR}.status.comparison.furtherIntervals[].confidence": DECIMAL,
    f"{BR}.status.comparison.furtherIntervals[].high": SIGNED_DECIMAL,
    f"{BR}.status.comparison.furtherIntervals[].low": SIGNED_DECIMAL,
    f"{BR}.status.results.cost": DECIMAL,
    f"{BR}.status.results.passAtK[].value": DECIMAL,
    f"{BR}.status.results.coverage": DECIMAL,
    f"{BR}.status.results.discipline.todoCompletion": DECIMAL,
    f"{BR}.status.results.discipline.extraTokens": DECIMAL,
    f"{BR}.status.results.discipline.phaseAdherence": DECIMAL,
    f"{BR}.status.results.discipline.success": DECIMAL,
    f"{BR}.status.results.discipline.tokensPerTask": DECIMAL,
    f"{BR}.status.results.discipline.tokenChange": SIGNED_DECIMAL,
    f"{BR}.status.results.rungs[].mean": SIGNED_DECIMAL,
    f"{BR}.status.results.rungs[].success": DECIMAL,
    f"{BR}.status.results.interval.confidence": DECIMAL,
    f"{BR}.status.results.interval.high": SIGNED_DECIMAL,
    f"{BR}.status.results.interval.low": SIGNED_DECIMAL,
    f"{BR}.status.results.mean": SIGNED_DECIMAL,
    f"{BR}.status.results.strictMean": SIGNED_DECIMAL,
    f"{LT}.spec.baseModel.hubId": HUB_ID,
    f"{LT}.spec.baseModel.modelServerRef.name": OBJECT_NAME,
    f"{LT}.spec.baseModel.source.uri": URI,
    f"{LT}.spec.datasets[].name": VOLUME_NAME,
    f"{LT}.spec.datasets[].filter.minimumReward": SIGNED_DECIMAL,
    f"{LT}.spec.datasets[].source.digest": CONTENT_DIGEST,
    f"{LT}.spec.datasets[].source.secretRef.name": SECRET_NAME,
    f"{LT}.spec.datasets[].source.uri": FILE_URI,
    f"{LT}.spec.datasets[].weight": WEIGHT,
    f"{LT}.spec.preparation.maximumTooLong": SHARE,
    f"{LT}.spec.evaluation.dataset": VOLUME_NAME,
    f"{LT}.spec.evaluation.earlyStopping.metric": METRIC,
    f"{LT}.spec.evaluation.share": OPEN_SHARE,
    f"{LT}.spec.initAdapter.source.uri": URI,
    f"{LT}.spec.initAdapter.trainingJobRef.name": OBJECT_NAME,
    f"{LT}.spec.queueName": QUEUE_NAME,
    f"{BR}.spec.queueName": QUEUE_NAME,
    f"{LT}.spec.hyperparameters.learningRate": DECIMAL,
    f"{LT}.spec.hyperparameters.warmupRatio": DECIMAL,
    f"{LT}.spec.distributed.env[].name": COMMUNICATION,
    f"{LT}.spec.lora.dropout": DECIMAL,
    f"{LT}.spec.output.adapter.uri": URI,
    **{f"{LT}.status.cost.{name}": DECIMAL for name in ("perHour", "deviceHours", "amount", "expected")},
    f"{LT}.status.cost.pods[].deviceSeconds": DECIMAL,
    f"{LT}.spec.preference.beta": POSITIVE,
    f"{LT}.spec.preference.reference.adapter.source.uri": URI,
    f"{LT}.spec.preference.reference.adapter.trainingJobRef.name": OBJECT_NAME,
    f"{LT}.spec.preference.reference.model.uri": URI,
    f"{LT}.spec.preference.losses[].weight": POSITIVE,
    f"{LT}.spec.plan.deviceMemory": DEVICE_MEMORY,
    f"{LT}.spec.plan.microBatchSize": AUTO,
    f"{LT}.spec.output.merged.uri": URI,
    f"{LT}.spec.output.push[].name": VOLUME_NAME,
    f"{LT}.spec.output.push[].secretRef.name": SECRET_NAME,
    f"{LT}.spec.output.push[].uri": PUSH_URI,
    f"{LT}.spec.resources.limits.*": QUANTITY,
    f"{LT}.spec.resources.requests.*": QUANTITY,
    f"{LT}.status.dataset.lossShare": DECIMAL,
    f"{LT}.status.dataset.truncatedShare": DECIMAL,
    f"{LT}.status.progress.learningRate": DECIMAL,
    f"{LT}.status.progress.loss": SIGNED_DECIMAL,
    f"{LT}.status.progress.tokensPerSecond": DECIMAL,
    f"{MS}.spec.adapterStores[].name": VOLUME_NAME,
    f"{MS}.spec.adapters[].name": SERVED_NAME,
    f"{MS}.spec.adapters[].source.digest": CONTENT_DIGEST,
    f"{MS}.spec.adapterStores[].secretRef.name": SECRET_NAME,
    f"{MS}.spec.adapters[].source.secretRef.name": SECRET_NAME,
    f"{MS}.spec.adapters[].source.uri": ANY_URI,
    f"{MS}.spec.adapters[].trainingJobRef.name": OBJECT_NAME,
    f"{MS}.spec.model.trainingJobRef.name": OBJECT_NAME,
    f"{MS}.spec.aliases[].name": SERVED_NAME,
    f"{MS}.spec.aliases[].promotion.gates[].minimum": SIGNED_DECIMAL,
    f"{MS}.spec.aliases[].promotion.gates[].maximum": SIGNED_DECIMAL,
    f"{MS}.spec.aliases[].promotion.gates[].minimumImprovement": DECIMAL,
    f"{MS}.spec.aliases[].promotion.suiteDigest": CONTENT_DIGEST,
    f"{MS}.spec.aliases[].targets[].adapter": SERVED_NAME,
    f"{MS}.spec.apiKeys[].models[]": SERVED_NAME,
    f"{MS}.spec.apiKeys[].name": VOLUME_NAME,
    f"{MS}.spec.apiKeys[].secretRef.key": SECRET_KEY,
    f"{MS}.spec.apiKeys[].secretRef.name": SECRET_NAME,
    f"{MS}.spec.engine.env[].name": VARIABLE,
    f"{MS}.spec.engine.gpuMemoryUtilization": SHARE,
    f"{MS}.spec.engine.toolCalling.parser": PARSER,
    f"{MS}.spec.engine.toolCalling.reasoningParser": PARSER,
    f"{MS}.spec.model.defaultSampling.temperature": SAMPLED,
    f"{MS}.spec.model.defaultSampling.topP": SAMPLED,
    f"{MS}.spec.model.servedName": SERVED_NAME,
    f"{MS}.spec.model.imageVolume.subPath": SUB_PATH,
    f"{MS}.spec.model.source.digest": CONTENT_DIGEST,
    f"{MS}.spec.model.source.secretRef.name": SECRET_NAME,
    f"{MS}.spec.model.source.uri": MODEL_URI,
    f"{MS}.spec.adapterCapacity.maxCpuLoras": AUTO,
    f"{MS}.spec.adapterCapacity.maxLoras": AUTO,
    f"{MS}.spec.resources.limits.*": QUANTITY,
    f"{MS}.spec.resources.requests.*": QUANTITY,
}
