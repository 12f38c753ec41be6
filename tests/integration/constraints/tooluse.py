"""The constraints of `BenchmarkRun.spec.suite.toolUse`, written down a second time: rows for `table` and `rules`."""

from collections.abc import Mapping
from typing import Any

SUITE = "BenchmarkRun.spec.suite.toolUse"
BY_URL = {"model": "judge", "url": "https://judge.example.com/v1", "secretRef": {"name": "keys", "key": "judge"}}
BY_SERVER = {"model": "judge", "modelServerRef": {"name": "server"}}

IN_CLAIM = {"uri": "pvc://data/company", "digest": "sha256:" + "a" * 64}
IN_BUCKET = {"uri": "s3://sets/company", "secretRef": {"name": "bucket"}}


def tool_use(*, by_url: bool) -> dict[str, Any]:
    """Return a suite whose judge is named by URL and whose overseer by server, or the other way round."""
    return {
        "environment": IN_CLAIM if by_url else IN_BUCKET,
        "instances": {"file": "test.json", "include": ["*"], "order": "RagBeforeApi", "limit": 8},
        "horizon": 10,
        "protocol": "Native",
        "tools": {"mode": "Rest", "topK": 3, "topKBy": "Configuration", "largestTopK": 10},
        "retriever": {
            "elasticsearch": {
                "url": "https://search:9200",
                "secretRef": {"name": "keys", "key": "search"},
                "authority": {"name": "ca", "key": "ca.crt"},
                "indexPrefix": "fern-",
                "timeoutSeconds": 30,
            }
        },
        "api": {
            "url": "http://company:8080",
            "secretRef": {"name": "keys", "key": "company"},
            "header": "Authorization",
            "timeoutSeconds": 30,
        },
        "scorer": {"kind": "Judge", "judge": BY_URL if by_url else BY_SERVER},
        "overseer": BY_SERVER if by_url else BY_URL,
        "expert": {
            "mode": "Informed",
            "epsilon": "0.5",
            "initialLimit": 2,
            "recentLimit": 2,
            "alternates": True,
            "branches": 1,
            "witness": BY_URL if by_url else BY_SERVER,
        },
        "repeatedActions": 3,
        "observationCharacters": 4000,
    }


AGENT = {"parameters": {"maxTokens": 64}, "budget": {"tokens": 9000}}
"""What of `spec.agent` means something beside the suite."""

ENUMS: Mapping[str, tuple[Any, ...]] = {
    f"{SUITE}.instances.order": ("RagBeforeApi", "ApiBeforeRag"),
    f"{SUITE}.protocol": ("Native", "Text"),
    f"{SUITE}.tools.mode": ("Rest", "SlotFilling", "Selection"),
    f"{SUITE}.tools.topKBy": ("Configuration", "Agent"),
    f"{SUITE}.scorer.kind": ("Exact", "Normalized", "Judge"),
    f"{SUITE}.expert.mode": ("None", "GroundTruth", "Random", "Informed"),
    "BenchmarkRun.spec.collect.preference.pairs": ("Attempts", "Alternates", "Branches"),
}

RANGES: Mapping[str, tuple[int, int]] = {
    f"{SUITE}.instances.limit": (1, 100000),
    f"{SUITE}.horizon": (1, 1000),
    f"{SUITE}.tools.topK": (1, 100),
    f"{SUITE}.tools.largestTopK": (1, 100),
    f"{SUITE}.api.timeoutSeconds": (1, 600),
    f"{SUITE}.retriever.elasticsearch.timeoutSeconds": (1, 600),
    f"{SUITE}.expert.initialLimit": (0, 1000),
    f"{SUITE}.expert.recentLimit": (1, 1000),
    f"{SUITE}.expert.branches": (0, 100),
    f"{SUITE}.repeatedActions": (2, 1000),
    f"{SUITE}.observationCharacters": (1, 1000000),
}

ITEMS: Mapping[str, tuple[int, int]] = {f"{SUITE}.instances.include": (1, 1000)}

LENGTHS: Mapping[str, tuple[int, int]] = {
    f"{SUITE}.instances.include[]": (1, 200),
    f"{SUITE}.retriever.elasticsearch.authority.name": (1, 253),
    f"{SUITE}.retriever.elasticsearch.authority.key": (1, 253),
    f"{SUITE}.scorer.judge.model": (1, 253),
    f"{SUITE}.overseer.model": (1, 253),
    f"{SUITE}.expert.witness.model": (1, 253),
}


def with_companions(obj: dict[str, Any], path: str, value: Any) -> None:
    """Make an object valid whose value at a path was changed."""
    suite = obj["spec"].get("suite", {}).get("toolUse", {})
    if path.endswith("toolUse.scorer.kind") and value != "Judge":
        del suite["scorer"]["judge"]
    if path.endswith("toolUse.expert.mode") and value in ("None", "GroundTruth"):
        del suite["expert"]["witness"]
    if path.endswith("toolUse.expert.mode") and value == "None":
        suite["expert"].update(alternates=False, branches=0)
        obj["spec"]["collect"]["preference"]["pairs"] = "Attempts"
    if path.endswith("toolUse.expert.branches") and value == 0:
        obj["spec"]["collect"]["preference"]["pairs"] = "Attempts"
