"""What the fields of `spec.engine` become in the engine's container."""

import re
from typing import Any

import pytest
from unit.operator.objects import SETTINGS, model_server
from whetstone_api.engine import OWN_FAMILIES, OWN_FLAGS, OWN_VARIABLES
from whetstone_operator.resources.engine import engine_options, precision
from whetstone_operator.resources.modelserver import build_deployment

NAMED = {"limits": {"amd.com/gpu": 1, "memory": "8Gi"}}


def engine(resources: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    server = model_server(engine=fields, **({"resources": resources} if resources else {}))
    pod = build_deployment(server, SETTINGS)["spec"]["template"]["spec"]
    found: dict[str, Any] = next(one for one in pod["containers"] if one["name"] == "engine")
    return found


def environment(container: dict[str, Any]) -> dict[str, str]:
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    return {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ["--dtype=auto"]),
        ({"gpuMemoryUtilization": "0.85"}, ["--dtype=auto", "--gpu-memory-utilization=0.85"]),
        ({"quantization": "CompressedTensors"}, ["--dtype=auto", "--quantization=compressed-tensors"]),
        (
            {"toolCalling": {"parser": "hermes"}},
            ["--dtype=auto", "--enable-auto-tool-choice", "--tool-call-parser=hermes"],
        ),
        ({"toolCalling": {"reasoningParser": "qwen3"}}, ["--dtype=auto", "--reasoning-parser=qwen3"]),
        (
            {"parallelism": {"tensor": 2, "pipeline": 3}},
            ["--dtype=auto", "--tensor-parallel-size=2", "--pipeline-parallel-size=3"],
        ),
    ],
)
def test_field_becomes_option(fields: dict[str, Any], options: list[str]) -> None:
    assert engine_options(model_server(engine=fields).spec.engine) == options
    assert engine(**fields)["args"][-len(options) :] == options


def test_copies_in_one_pod_share_one_api_process() -> None:
    arguments = engine(parallelism={"data": 4})["args"]
    assert {"--data-parallel-size=4", "--api-server-count=1"} <= set(arguments)
    assert not any("api-server-count" in one for one in engine(parallelism={"tensor": 4})["args"])


def test_parallelism_asks_for_its_gpus_beside_what_the_spec_gives() -> None:
    ways = {"tensor": 2, "pipeline": 2, "data": 3}
    assert engine(parallelism=ways)["resources"] == {"limits": {"nvidia.com/gpu": 12}}
    memory = {"limits": {"memory": "8Gi"}, "requests": {"cpu": "1"}}
    limits = {"memory": "8Gi", "nvidia.com/gpu": 12}
    assert engine(memory, parallelism=ways)["resources"] == {"limits": limits, "requests": {"cpu": "1"}}


def test_devices_that_the_spec_names_are_left_as_they_are() -> None:
    assert engine(NAMED, parallelism={"tensor": 2})["resources"] == NAMED
    none = {"limits": {"nvidia.com/gpu": 0}}
    assert engine(none, parallelism={"tensor": 2})["resources"] == none


def test_without_parallelism_no_device_is_asked_for() -> None:
    assert "resources" not in engine()


def test_quantized_weights_are_a_precision_of_their_own() -> None:
    assert precision(model_server(engine={"dtype": "BFloat16"}).spec.engine) == "bfloat16"
    assert precision(model_server(engine={"dtype": "BFloat16", "quantization": "Fp8"}).spec.engine) == "fp8"


def test_users_variables_stand_beside_ours() -> None:
    held = environment(engine(env=[{"name": "OMP_NUM_THREADS", "value": "4"}]))
    assert held["OMP_NUM_THREADS"] == "4"
    assert held["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"


def test_kubernetes_expands_nothing_of_the_user() -> None:
    container = engine(
        env=[{"name": "A", "value": "--api-key=$(B) $"}], extraArgs=["$(A)", "--override-generation-config={}$$(A)"]
    )
    assert container["args"][-2:] == ["$$(A)", "--override-generation-config={}$$$$(A)"]
    assert environment(container)["A"] == "--api-key=$$(B) $$"


def test_no_variable_of_ours_may_be_set_by_the_user() -> None:
    refused = re.compile(f"^({'|'.join(OWN_VARIABLES)})$")
    assert [name for name in environment(engine()) if not refused.match(name)] == []


def test_no_option_of_ours_may_be_set_by_the_user() -> None:
    arguments = engine(
        gpuMemoryUtilization="0.5",
        quantization="Fp8",
        maxModelLength=512,
        parallelism={"data": 2},
        toolCalling={"parser": "hermes", "reasoningParser": "qwen3"},
    )["args"]
    names = [one.removeprefix("--").split("=")[0] for one in arguments if one.startswith("--")]
    assert [name for name in names if name not in OWN_FLAGS and not name.startswith(OWN_FAMILIES)] == []
