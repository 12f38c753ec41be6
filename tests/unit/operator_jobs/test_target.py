"""Which version a BenchmarkRun measures."""

from typing import Any

import pytest
from whetstone_api.benchmark_target import TargetSpec
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.target import resolve_target
from whetstone_operator.runtime.outcome import Stalled, Waiting

DIGEST = "sha256:" + "ab" * 32
VERSION = "tools--abababab"
LOADED = {
    "name": "tools",
    "servedName": VERSION,
    "digest": DIGEST,
    "source": "pvc://adapters/tools",
    "loadedReplicas": 2,
    "effectiveReplicas": 2,
}


def make_server(*, ready: str = "True", **status: Any) -> ModelServer:
    condition = {"type": "Ready", "status": ready, "reason": "Serving", "message": "", "lastTransitionTime": "x"}
    return ModelServer.model_validate(
        {
            "metadata": {"name": "m", "namespace": "n"},
            "spec": {
                "model": {"source": {"uri": "pvc://models/m"}, "servedName": "base"},
                "adapters": [{"name": "tools", "trainingJobRef": {"name": "t"}}],
                "aliases": [{"name": "stable", "promotion": {"benchmarkSelector": {"matchLabels": {"a": "b"}}}}],
            },
            "status": {"conditions": [condition], "readyReplicas": 2, **status},
        }
    )


def make_target(**target: str) -> TargetSpec:
    return TargetSpec.model_validate({"modelServerRef": {"name": "m"}, **target})


def test_base_is_measured_without_adapter_or_alias() -> None:
    resolved = resolve_target(make_target(), make_server())
    assert (resolved.target.served_name, resolved.target.digest, resolved.source) == ("base", None, None)


def test_adapter_is_measured_in_its_current_version() -> None:
    resolved = resolve_target(make_target(adapter="tools"), make_server(adapters=[LOADED]))
    assert (resolved.target.served_name, resolved.target.adapter, resolved.target.digest) == (VERSION, "tools", DIGEST)
    assert resolved.source is not None
    assert resolved.source.uri == "pvc://adapters/tools"


def test_alias_is_measured_as_what_it_serves() -> None:
    base = {"name": "stable", "adapter": "base", "servedName": "base"}
    assert resolve_target(make_target(alias="stable"), make_server(aliases=[base])).target.served_name == "base"
    moved = {"name": "stable", "adapter": "tools", "servedName": VERSION, "digest": DIGEST}
    server = make_server(aliases=[moved], adapters=[LOADED])
    assert resolve_target(make_target(alias="stable"), server).target.served_name == VERSION


def test_adapter_from_outside_the_cluster_is_measured_without_its_lineage() -> None:
    fetched = {**LOADED, "source": "s3://bucket/tools"}
    resolved = resolve_target(make_target(adapter="tools"), make_server(adapters=[fetched]))
    assert (resolved.target.served_name, resolved.source) == (VERSION, None)


@pytest.mark.parametrize(
    ("target", "status", "reason", "words"),
    [
        ({}, {"ready": "False"}, Reason.REFERENCE_NOT_READY, "ModelServer m is not ready"),
        ({"adapter": "other"}, {}, Reason.REFERENCE_NOT_FOUND, "has no adapter other (its adapters: tools)"),
        ({"alias": "other"}, {}, Reason.REFERENCE_NOT_FOUND, "has no alias other (its aliases: stable)"),
        ({"alias": "stable"}, {}, Reason.REFERENCE_NOT_READY, "does not answer yet"),
        ({"adapter": "tools"}, {}, Reason.ADAPTER_NOT_EFFECTIVE, "is not loaded yet"),
        (
            {"adapter": "tools"},
            {"adapters": [{**LOADED, "effectiveReplicas": 1}]},
            Reason.ADAPTER_NOT_EFFECTIVE,
            "effective on 1 of 2 ready replicas",
        ),
    ],
)
def test_what_is_not_there_yet_is_waited_for(
    target: dict[str, str], status: dict[str, Any], reason: Reason, words: str
) -> None:
    with pytest.raises(Waiting, match=r"spec\.target") as caught:
        resolve_target(make_target(**target), make_server(**status))
    assert caught.value.reason == reason
    assert words in caught.value.message


def test_selected_adapter_is_measured_though_the_spec_does_not_name_it() -> None:
    server = make_server(adapters=[{**LOADED, "name": "selected"}])
    assert resolve_target(make_target(adapter="selected"), server).target.adapter == "selected"


def test_alias_with_several_targets_is_no_version_to_measure() -> None:
    shares = [{"adapter": "base", "servedName": "base", "weight": 1}, {"adapter": "tools", "servedName": VERSION}]
    split = {"name": "stable", "adapter": "base", "servedName": "base", "targets": [{"weight": 1, **s} for s in shares]}
    with pytest.raises(Waiting, match=r"spec\.target\.alias: alias stable has 2 targets.*spec\.target\.adapter"):
        resolve_target(make_target(alias="stable"), make_server(aliases=[split]))


@pytest.mark.parametrize("verdict", ["NoEffect", "Divergent"])
def test_adapter_without_its_effect_is_never_measured(verdict: str) -> None:
    broken = {**LOADED, "effectiveReplicas": 0, "reason": verdict, "message": "the output is the base's"}
    with pytest.raises(Stalled) as caught:
        resolve_target(make_target(adapter="tools"), make_server(adapters=[broken]))
    assert caught.value.reason == Reason.ADAPTER_NOT_EFFECTIVE
    assert verdict in caught.value.message
