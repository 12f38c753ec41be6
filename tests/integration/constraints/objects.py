"""Objects that hold every field at least once: the ground on which each constraint is tried."""

import copy
import re
from typing import Any

from integration.constraints.tooluse import AGENT, tool_use
from whetstone_api.vocabulary import API_VERSION

Object = dict[str, Any]
DIGEST = "sha256:" + "0" * 64
TIME = "2026-01-01T00:00:00Z"
RESOURCES = {"requests": {"cpu": "500m"}, "limits": {"memory": "4Gi"}}
STATUS = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "serves",
            "lastTransitionTime": TIME,
            "observedGeneration": 1,
        }
    ],
}
FAR_MODEL = {
    "source": {"uri": "s3://models/base", "digest": DIGEST, "secretRef": {"name": "keys"}},
    "servedName": "base",
    "cache": {"claimName": "cache"},
}
IMAGE = "oci://registry.example.com/models/base@" + DIGEST
IMAGE_MODEL = {"source": {"uri": IMAGE}, "servedName": "base", "imageVolume": {"subPath": "models/base"}}
SAMPLING = {"temperature": "0.7", "topP": "0.9", "maxTokens": 64}
INTERVAL = {"low": "-0.1", "high": "0.2", "confidence": "0.95"}


def _object(kind: str, name: str, spec: Object, status: Object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
        "status": {**STATUS, **status},
    }


GATE = {"metric": "Mean", "minimum": "0.5", "confidence": "0.95"}
IMPROVING_GATE = {"metric": "Mean", "minimumImprovement": "0"}
CAPPED_GATE = {"metric": "PassAtK", "k": 1, "maximum": "0.5"}


def model_server(*, promoted: bool, far: bool = False, gate: Object = GATE) -> Object:
    """Return a server whose first adapter comes from a folder, or from a training job and an alias by promotion.

    Args:
        promoted: The latter.
        far: What comes from a folder comes from outside the cluster.
        gate: A promotion's gate.
    """
    promotion = {
        "benchmarkSelector": {"matchLabels": {"for": "stable"}},
        "suiteDigest": DIGEST,
        "minimumTasks": 8,
        "gates": [gate],
    }
    first: Object = {"source": {"uri": "pvc://adapters/a", "digest": DIGEST}}
    if promoted:
        first = {"trainingJobRef": {"name": "train"}}
    if far:
        first = {"source": {"uri": "s3://adapters/a", "digest": DIGEST, "secretRef": {"name": "keys"}}}
    alias: Object = {"promotion": promotion} if promoted else {"targets": [{"adapter": "b", "weight": 1}]}
    spec = {
        "model": {"source": {"uri": "pvc://models/base"}, "servedName": "base", "defaultSampling": SAMPLING},
        **({"model": IMAGE_MODEL if promoted else FAR_MODEL} if far else {}),
        **({"model": {"trainingJobRef": {"name": "train"}, "servedName": "base"}} if promoted and not far else {}),
        "engine": {
            "image": "vllm:1",
            "dtype": "Auto",
            "maxModelLength": 1024,
            "gpuMemoryUtilization": "0.9",
            "quantization": "Fp8",
            "parallelism": {"tensor": 2, "pipeline": 1, "data": 1},
            "toolCalling": {"parser": "hermes", "reasoningParser": "qwen3"},
            "chatTemplate": {"configMapRef": {"name": "chat", "key": "t"}} if far else {"inline": "{{ messages }}"},
            "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
            "extraArgs": ["--enforce-eager"],
        },
        "replicas": 1,
        "resources": RESOURCES,
        "podTemplate": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "a"}},
            "spec": {"nodeSelector": {"disk": "fast"}},
        },
        "adapterStores": [
            {"name": "keys", "secretRef": {"name": "keys"}} if far else {"name": "adapters", "claimName": "adapters"}
        ],
        "adapters": [
            {"name": "a", "required": True, **first},
            {"name": "b", "source": {"uri": "pvc://adapters/b", "digest": DIGEST}},
        ],
        "adapterSelector": {"matchLabels": {"for": "server"}},
        "adapterCapacity": {
            "maxLoras": "Auto",
            "maxRank": "Auto",
            "maxCpuLoras": 64,
            "headroom": {"loras": 4, "rank": 16},
        },
        "aliases": [{"name": "stable", **alias}],
        "startup": {"timeoutSeconds": 600},
        "drain": {"seconds": 60},
        "apiKeys": [{"name": "team", "secretRef": {"name": "keys", "key": "team"}, "models": ["stable"]}],
        "limits": {"requestBytes": 1048576, "concurrentRequests": 64},
    }
    status = {
        "replicas": 1,
        "readyReplicas": 1,
        "selector": "a=b",
        "url": "http://m.n.svc:80/v1",
        "adapters": [
            {
                "name": "a",
                "servedName": "a--00000000",
                "digest": DIGEST,
                "source": "pvc://adapters/a",
                "rank": 16,
                "loadedReplicas": 1,
                "effectiveReplicas": 1,
                "effectiveSince": TIME,
                "reason": "Loading",
                "message": "is loaded",
            }
        ],
        "model": {"trainingJob": "train", "source": "pvc://models/merged", "digest": DIGEST},
        "capacity": {
            "maxLoras": 4,
            "maxRank": 16,
            "maxCpuLoras": 64,
            "message": "maxRank: the headroom is 16",
            "memory": dict.fromkeys(("weights", "adapters", "cachePerRequest", "work", "least"), "1.00Gi"),
        },
        "sources": [{"uri": "hf://o/r@main", "digest": DIGEST, "resolved": "hf://o/r@" + "0" * 40}],
        "failures": [{"pod": "p", "adapter": "a", "reason": "LoadFailed", "message": "no"}],
        "aliases": [
            {
                "name": "stable",
                "adapter": "b",
                "servedName": "b--00000000",
                "digest": DIGEST,
                "since": TIME,
                "benchmarkRun": "run",
                "previous": "base",
                "history": [
                    {
                        "time": TIME,
                        "reason": "Promotion",
                        "servedName": "b--00000000",
                        "digest": DIGEST,
                        "benchmarkRun": "run",
                    }
                ],
                "targets": [{"adapter": "b", "servedName": "b--00000000", "digest": DIGEST, "weight": 1}],
            }
        ],
    }
    return _object("ModelServer", "server", spec, status)


def training_job(*, referring: bool, pairs: bool = False) -> Object:
    """Return a training job that names places, or one that names other objects.

    Args:
        referring: The latter.
        pairs: It learns from preference pairs.
    """
    preference = {
        "granularity": "Step",
        "losses": [{"type": "Sigmoid", "weight": "1"}],
        "beta": "0.1",
        "reference": {
            "model": {"uri": "pvc://models/other"},
            "adapter": {"trainingJobRef": {"name": "a"}} if referring else {"source": {"uri": "pvc://adapters/r"}},
        },
    }
    spec = {
        "baseModel": (
            {"modelServerRef": {"name": "server"}}
            if referring
            else {"source": {"uri": "pvc://models/base"}, "hubId": "owner/base"}
        ),
        "initAdapter": (
            {"trainingJobRef": {"name": "first"}}
            if referring
            else {"source": {"uri": "pvc://adapters/first"}, "mode": "Continue"}
        ),
        "method": "DPO" if pairs else "SFT",
        "backend": "TRL",
        **({"preference": preference} if pairs else {}),
        "datasets": [
            (
                {"name": "d", "benchmarkRunRef": {"name": "run", "kind": "Preference"}}
                if pairs
                else {"name": "d", "configMapRef": {"name": "data", "key": "train.jsonl"}}
            )
            if referring
            else {
                "name": "d",
                "source": (
                    {"uri": "pvc://data/train.jsonl"}
                    if pairs
                    else {"uri": "s3://data/train.jsonl", "digest": DIGEST, "secretRef": {"name": "keys"}}
                ),
                "weight": "0.5",
                "filter": {"minimumReward": "1", "maximumTurns": 20},
            },
            *([{"name": "held-out", "source": {"uri": "pvc://data/test.jsonl"}}] if referring else []),
        ],
        "preparation": {"tooLong": "Drop", "maximumTooLong": "0.1", "minimumRows": 1},
        "evaluation": {
            **({"dataset": "held-out"} if referring else {"share": "0.1"}),
            "everySteps": 10,
            "earlyStopping": {"metric": "evalLoss", "patience": 3},
        },
        "loss": {"target": "Assistant" if pairs else "LastTurn", "maskSuboptimal": True},
        "lora": {"rank": 16, "alpha": 32, "dropout": "0", "targetModules": ["q_proj"], "rsLora": True},
        "hyperparameters": {
            "learningRate": "2e-4",
            "batchSize": 8,
            "warmupRatio": "0.1",
            "maxLength": 512,
            "seed": 0,
            **({"maxSteps": 10} if referring else {"epochs": 1}),
        },
        "distributed": {
            "nodes": 2,
            "processesPerNode": 2,
            "strategy": "DDP",
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
        },
        "quantization": "NF4",
        "plan": {
            "microBatchSize": 4,
            "gradientCheckpointing": "Enabled",
            "packing": "Padded",
            "attention": "SDPA",
            "compile": "Disabled",
            "deviceMemory": "80Gi",
        },
        "workspace": (
            {"claimTemplate": {"size": "1Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]}}
            if referring
            else {"claimName": "work"}
        ),
        "checkpoint": {"everySteps": 50, "keep": 2},
        "output": {
            "adapter": {"uri": "pvc://adapters/a"},
            "merged": {"uri": "pvc://models/a"},
            "push": [
                {"name": "far", "uri": "s3://adapters/a", "what": "Merged", "secretRef": {"name": "keys"}}
                if referring
                else {"name": "near", "uri": "pvc://shared/a", "what": "Adapter"}
            ],
        },
        "resources": RESOURCES,
        "image": "trainer:1",
        "queueName": "team",
        "podTemplate": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "a"}},
            "spec": {"nodeSelector": {"disk": "fast"}},
        },
        "stall": {"minutes": 30},
        "suspend": False,
        "activeDeadlineSeconds": 600,
        "ttlSecondsAfterFinished": 600,
    }
    status = {
        "progress": {
            "phase": "Train",
            "percent": 50,
            "step": 1,
            "maxSteps": 2,
            "loss": "1.5",
            "etaSeconds": 3,
            "learningRate": "2e-4",
            "tokensPerSecond": "10.5",
            "peakMemoryBytes": 1,
            "updatedAt": TIME,
        },
        "dataset": {
            "rows": 1,
            "tokens": 2,
            "lossTokens": 1,
            "lossShare": "0.5",
            "longest": 2,
            "maxLength": 64,
            "read": 6,
            "filtered": 1,
            "undrawn": 1,
            "duplicates": 1,
            "splitRows": 1,
            "dropped": 1,
            "truncated": 1,
            "truncatedShare": "0.2",
            "advice": ["1 rows are few"],
            "lengths": {"p50": 2, "p90": 2, "p99": 2},
            "evaluation": {"rows": 1, "tokens": 2, "lossTokens": 1, "longest": 2},
            "recipeDigest": DIGEST,
        },
        "stalls": 1,
        "attempts": 1,
        "estimate": {
            "memory": "9.18Gi",
            "least": "7.15Gi",
            "plan": "micro-batch 4",
            "basis": [{"name": "weights", "bytes": 1}],
            "tokens": 1000,
            "operations": "1.5e+15",
            "cost": {
                "resource": "nvidia.com/gpu",
                "perHour": "2.5",
                "currency": "EUR",
                "devices": "2",
                "deviceHours": "1",
                "amount": "2.5",
                "basis": "operations",
            },
        },
        "cost": {
            "resource": "nvidia.com/gpu",
            "perHour": "2.5",
            "currency": "EUR",
            "deviceHours": "2",
            "amount": "5",
            "expected": "7.5",
            "basis": "time of the pods on their nodes",
            "countedAt": TIME,
            "pods": [{"name": "a", "deviceSeconds": "7200", "ended": True}],
        },
        "plan": {
            "microBatchSize": 4,
            "gradientCheckpointing": False,
            "packing": "Padded",
            "attention": "sdpa",
            "compiled": False,
            "reason": "as asked",
        },
        "adapter": {"uri": "pvc://adapters/a", "digest": DIGEST, "rank": 16, "bytes": 1, "publishedAt": TIME},
        "merged": {"uri": "pvc://models/a", "digest": DIGEST, "bytes": 1},
        "pushes": [{"name": "near", "uri": "pvc://shared/a", "digest": DIGEST}],
        "metrics": {"trainLoss": "1.2"},
        "warnings": ["tracker wandb failed"],
        "handledRetry": "1",
        "startedAt": TIME,
        "finishedAt": TIME,
    }
    return _object("LoRATrainingJob", "train", spec, status)


CLAIMED_TASKS: Object = {"uri": "pvc://data/tasks"}
NAMED_AGENT: Object = {
    "name": "whetstone",
    "parameters": {
        "maxTurns": 3,
        "maxTokens": 64,
        "systemPrompt": "Be brief.",
        "contextTokens": 2048,
        "historyTurns": 4,
        "observationCharacters": 400,
        "commandSeconds": 60,
        "repeatedCommands": 3,
    },
    "options": {"parser_name": "xml"},
    "budget": {"tokens": 9000, "wallClockSeconds": 600, "runTokens": 90000},
}


def benchmark_run(
    *, improving: bool, gate: Object = GATE, agent: Object = NAMED_AGENT, dataset: Object = CLAIMED_TASKS
) -> Object:
    """Return a run of an adapter with a gate, or of an alias."""
    sandbox = {"kind": "Pod", "networkLimits": "Enforced", "queueSeconds": 600, "startSeconds": 60}
    spec = {
        "target": {
            "modelServerRef": {"name": "server"},
            "shared": True,
            **({"alias": "stable"} if improving else {"adapter": "a"}),
        },
        "suite": {
            "harbor": {
                "dataset": dataset,
                "tasks": {"include": ["*"], "exclude": ["x*"], "limit": 8},
                "refused": "Exclude",
                "oracle": {"minimumReward": "1", "withoutSolution": "Run", "verdicts": {"uri": "pvc://data/verdicts"}},
                "images": {"prefix": "registry.example.com/mirror", "map": {"a:1": "b:1"}},
                **({"trialResources": RESOURCES} if improving else {"environment": sandbox}),
            }
        },
        "agent": agent,
        "sampling": {"temperature": "0", "topP": "1", "seed": 0},
        "attempts": 1,
        "concurrency": 4,
        "shards": 2,
        "baselineRef": {"name": "baseline"},
        "gates": [gate],
        "collect": {
            "sft": {"minimumReward": "1", "per": "Episode", "trialsPerTask": 1},
            "preference": {"minimumDifference": "1", "pairsPerTask": 1},
        },
        "discipline": {
            "done": ["tick"],
            "finish": ["end"],
            "nextPhase": ["plan"],
            "edits": {"patch": {"path": "file", "old": "a", "new": "b"}},
            "writes": {"put": {"path": "file", "content": "text"}},
            "reads": {"cat": {"path": "file"}},
        },
        "passAtK": [1],
        "prices": {"inputPerMillion": "0.1", "outputPerMillion": "0.4"},
        "judge": {
            "model": "judge",
            "maximumTokens": 1000,
            **(
                {
                    "url": "https://judge.example.com/v1",
                    "secretRef": {"name": "keys", "key": "judge"},
                    "certificateAuthorityRef": {"name": "keys", "key": "ca.crt"},
                }
                if improving
                else {"modelServerRef": {"name": "server"}}
            ),
        },
        "maximumErrorRate": "0.1",
        "output": {"uri": "pvc://results/run"},
        "resources": RESOURCES,
        "image": "benchmark:1",
        "queueName": "team",
        "suspend": False,
        "activeDeadlineSeconds": 600,
        "ttlSecondsAfterFinished": 600,
    }
    status = {
        "progress": {
            "phase": "Trials",
            "fetchedBytes": 1,
            "totalBytes": 1,
            "finished": 3,
            "total": 8,
            "passed": 1,
            "failed": 1,
            "void": 1,
            "running": 4,
            "etaSeconds": 60,
            "updatedAt": TIME,
        },
        "estimate": {"promptTokens": 9, "completionTokens": 1, "cost": "0.1", "most": "1", "basis": "tokens"},
        "target": {
            "servedName": "a--00000000",
            "adapter": "a",
            "digest": DIGEST,
            "engine": {"image": "engine:1", "settings": DIGEST, "chatTemplate": DIGEST},
        },
        "results": {
            "tasks": 8,
            "trials": 8,
            "mean": "0.5",
            "strictMean": "0.5",
            "interval": INTERVAL,
            "furtherIntervals": [{**INTERVAL, "confidence": "0.9"}],
            "passAtK": [{"k": 1, "value": "0.5", "tasks": 8}],
            "coverage": "1",
            "void": 0,
            "refused": [{"reason": "Compose", "count": 1, "names": ["a"]}],
            "oracle": {"solved": 7, "reused": 7, "withoutSolution": 1, "names": ["b"], "uri": "pvc://data/verdicts"},
            "timeouts": 0,
            "truncations": 0,
            "contextOverflows": 0,
            "cost": "0.1",
            "promptTokens": 1,
            "completionTokens": 1,
            "durationSeconds": 1,
            "rungs": [{"rung": "nested", "tasks": 8, "mean": "0.5", "success": "0.5"}],
            "commands": {
                "commands": 8,
                "success": "0.5",
                "recovery": "0.5",
                "solvedAfterError": "0.5",
                "turnsToSolve": "3",
            },
            "discipline": {
                "trajectories": 8,
                "unread": 0,
                "todoCompletion": "1",
                "extraTokens": "0.1",
                "phaseAdherence": "1",
                "success": "0.5",
                "tokensPerTask": "10",
                "tokenChange": "-0.2",
            },
            "uri": "pvc://results/run",
        },
        "collected": {
            "sft": {"uri": "pvc://results/run/collect/sft-0.jsonl", "digest": DIGEST, "rows": 1},
            "preference": {"uri": "pvc://results/run/collect/preference-0.jsonl", "digest": DIGEST, "rows": 1},
        },
        "judged": {
            "uri": "pvc://results/run/judge/0",
            "judge": DIGEST,
            "model": "judge",
            "trials": 8,
            "unparsed": 0,
            "unanswered": 1,
            "reasoning": "3.5",
            "completeness": "4",
            "agreement": {"trials": 8, "agreement": "0.5", "kappa": "-0.1"},
            "tokens": 100,
            "stopped": "the judge does not answer",
        },
        "comparison": {
            "baseline": "baseline",
            "verdict": "Better",
            "difference": "0.5",
            "interval": INTERVAL,
            "furtherIntervals": [{**INTERVAL, "confidence": "0.9"}],
            "wins": 4,
            "losses": 0,
            "ties": 4,
            "minimumDetectable": "0.2",
            "message": "Better",
        },
        "recipeDigest": DIGEST,
        "suiteDigest": DIGEST,
        "handledRetry": "1",
        "startedAt": TIME,
        "finishedAt": TIME,
    }
    return _object("BenchmarkRun", "run", spec, status)


def tool_use_run(*, by_url: bool) -> Object:
    """Return a run of questions that are answered by calling tools."""
    run = benchmark_run(improving=False, agent=AGENT)
    run["spec"]["suite"] = {"toolUse": tool_use(by_url=by_url)}
    run["spec"]["collect"]["preference"]["pairs"] = "Branches"
    run["status"]["results"]["expertSteps"] = 1
    return run


VARIANTS: dict[str, tuple[Object, ...]] = {
    "ModelServer": (
        model_server(promoted=False),
        model_server(promoted=True),
        model_server(promoted=False, far=True),
        model_server(promoted=True, far=True, gate=IMPROVING_GATE),
        model_server(promoted=True, gate=CAPPED_GATE),
    ),
    "LoRATrainingJob": (
        training_job(referring=False),
        training_job(referring=True),
        training_job(referring=False, pairs=True),
        training_job(referring=True, pairs=True),
    ),
    "BenchmarkRun": (
        benchmark_run(improving=False),
        benchmark_run(
            improving=True,
            gate=IMPROVING_GATE,
            dataset={"configMapRef": {"name": "tasks", "key": "set.tar.gz"}},
        ),
        benchmark_run(improving=False, gate=CAPPED_GATE),
        benchmark_run(improving=False, agent={"importPath": "mine:Agent", "configMapRef": {"name": "mine"}}),
        benchmark_run(improving=False, agent={"importPath": "mine:Agent", "source": {"uri": "pvc://data/agent"}}),
        tool_use_run(by_url=True),
        tool_use_run(by_url=False),
        benchmark_run(
            improving=False,
            dataset={"uri": "s3://sets/basic", "digest": DIGEST, "secretRef": {"name": "bucket"}},
            agent={
                "importPath": "mine:Agent",
                "source": {"uri": "https://h/agent.tar", "digest": DIGEST, "secretRef": {"name": "web"}},
            },
        ),
    ),
}


def steps_of(path: str) -> list[str]:
    """Return the steps of a schema path: `spec.adapters[].name` is spec, adapters, [], name."""
    return re.findall(r"\[\]|[^.\[\]]+", path)


def read(obj: Any, path: str) -> Any:
    """Return the value at a schema path; lists and maps are entered at their first member. KeyError: not there."""
    for step in steps_of(path):
        if step == "[]":
            obj = obj[0]
        elif step == "*":
            obj = next(iter(obj.values()))
        else:
            obj = obj[step]
    return obj


def with_value(kind: str, path: str, value: Any) -> Object:
    """Return the first variant of a kind that has the path, with another value there.

    Raises:
        KeyError: No variant has the path.
    """
    *parents, last = steps_of(path)
    for variant in VARIANTS[kind]:
        try:
            read(variant, path)
        except (KeyError, IndexError):
            continue
        changed = copy.deepcopy(variant)
        parent = read(changed, ".".join(parents)) if parents else changed
        if last == "[]":
            parent[0] = value
        elif last == "*":
            parent[next(iter(parent))] = value
        else:
            parent[last] = value
        return changed
    raise KeyError(f"no object of kind {kind} has {path}; add it to objects.py")
