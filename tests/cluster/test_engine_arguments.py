"""The real engine's own parser takes what the builder renders."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import eventually
from unit.operator.objects import model_server
from whetstone_api.engine import Quantization
from whetstone_dev.demo import plan
from whetstone_dev.demo.kube import Kube
from whetstone_operator.resources.engine_containers import engine_arguments

pytestmark = pytest.mark.cluster
FULL = {
    "gpuMemoryUtilization": "0.85",
    "maxModelLength": 512,
    "parallelism": {"tensor": 2, "pipeline": 2, "data": 2},
    "toolCalling": {"parser": "hermes", "reasoningParser": "qwen3"},
    "extraArgs": ["--enforce-eager"],
}
PROGRAM = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
found = [vars(parser.parse_args(arguments)) for arguments in json.loads(sys.argv[1])]
assert all(one["quantization"] in QUANTIZATION_METHODS for one in found)
names = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "api_server_count",
         "gpu_memory_utilization", "tool_call_parser", "enable_auto_tool_choice", "reasoning_parser", "enforce_eager")
print("ARGUMENTS " + json.dumps({name: found[0][name] for name in names}))
"""


@pytest.fixture
def place(kube: Kube) -> Iterator[str]:
    """A namespace of the test's own; no operator looks at it."""
    name = f"engine-{secrets.token_hex(4)}"
    kube.apply(plan.namespace(name))
    yield name
    kube.delete("v1", "Namespace", name=name)


def test_the_engines_parser_takes_every_field(kube: Kube, images: dict[str, str], place: str) -> None:
    rendered = [engine_arguments(model_server(engine={**FULL, "quantization": one})) for one in Quantization]
    container = {
        "name": "main",
        "image": images["engine-cpu"],
        "command": ["python3", "-c", PROGRAM, json.dumps(rendered)],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "test"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "parser"}}
    kube.apply({**pod, "spec": {"restartPolicy": "Never", "containers": [container]}}, namespace=place)

    def ended() -> bool:
        found = kube.get("v1", "Pod", name="parser", namespace=place) or {}
        return found["status"].get("phase") in ("Succeeded", "Failed")

    eventually(ended, what="the parser's pod has ended", seconds=240)
    said = kube.logs(namespace=place, pod="parser", container="main", lines=40)
    assert "ARGUMENTS " in said, said
    parsed: dict[str, Any] = json.loads(said.split("ARGUMENTS ", 1)[1].splitlines()[0])
    assert parsed == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "data_parallel_size": 2,
        "api_server_count": 1,
        "gpu_memory_utilization": 0.85,
        "tool_call_parser": "hermes",
        "enable_auto_tool_choice": True,
        "reasoning_parser": "qwen3",
        "enforce_eager": True,
    }
