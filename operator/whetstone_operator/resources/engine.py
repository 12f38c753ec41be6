"""What a ModelServer's `engine` becomes: options of `vllm serve`, variables, devices. Pure."""

from typing import Any

from whetstone_api.engine import Dtype, EngineSpec, Quantization
from whetstone_api.schema import Resources

from whetstone_operator.resources.devices import asks_for_devices

GPU = "nvidia.com/gpu"
DTYPE_FLAGS = {
    Dtype.AUTO: "auto",
    Dtype.FLOAT32: "float32",
    Dtype.BFLOAT16: "bfloat16",
    Dtype.FLOAT16: "float16",
}
QUANTIZATION_FLAGS = {
    Quantization.FP8: "fp8",
    Quantization.AWQ: "awq",
    Quantization.AWQ_MARLIN: "awq_marlin",
    Quantization.GPTQ: "gptq",
    Quantization.GPTQ_MARLIN: "gptq_marlin",
    Quantization.COMPRESSED_TENSORS: "compressed-tensors",
    Quantization.MODEL_OPT: "modelopt",
}


def engine_options(engine: EngineSpec) -> list[str]:
    """Return the options of `vllm serve` that the engine's fields stand for, but for `extraArgs`."""
    options = [f"--dtype={DTYPE_FLAGS[engine.dtype]}"]
    if engine.max_model_length is not None:
        options.append(f"--max-model-len={engine.max_model_length}")
    if engine.gpu_memory_utilization is not None:
        options.append(f"--gpu-memory-utilization={engine.gpu_memory_utilization}")
    if engine.quantization is not None:
        options.append(f"--quantization={QUANTIZATION_FLAGS[engine.quantization]}")
    return options + _parallel_options(engine) + _tool_options(engine)


def precision(engine: EngineSpec) -> str:
    """Return the name of the engine's precision, by which a sidecar tells whether a recorded probe can be judged.

    Quantized weights compute something else than any precision of the trainer, so they have a name of their own.
    """
    if engine.quantization is not None:
        return QUANTIZATION_FLAGS[engine.quantization]
    return DTYPE_FLAGS[engine.dtype]


def engine_resources(engine: EngineSpec, resources: Resources | None) -> dict[str, Any] | None:
    """Return the resources of the engine's container; None where nothing is asked.

    Args:
        engine: The engine; its parallelism asks for GPUs where the resources name no device.
        resources: What the spec gives.
    """
    wire = resources.to_wire() if resources else {}
    if engine.parallelism is not None and not asks_for_devices(wire):
        wire["limits"] = {**wire.get("limits", {}), GPU: engine.parallelism.devices}
    return wire or None


def engine_variables(engine: EngineSpec) -> list[dict[str, str]]:
    """Return the user's variables."""
    return [{"name": variable.name, "value": _literal(variable.value)} for variable in engine.env or []]


def extra_arguments(engine: EngineSpec) -> list[str]:
    """Return the user's arguments."""
    return [_literal(argument) for argument in engine.extra_args or []]


def _literal(text: str) -> str:
    """Return a text that Kubernetes does not expand: `$(NAME)` would bring in what the schema has not seen."""
    return text.replace("$", "$$")


def _parallel_options(engine: EngineSpec) -> list[str]:
    ways = engine.parallelism
    if ways is None:
        return []
    options = [f"--tensor-parallel-size={ways.tensor}", f"--pipeline-parallel-size={ways.pipeline}"]
    if ways.data > 1:
        # By default there is one API process a copy, and then adapters cannot be loaded into a running engine.
        options += [f"--data-parallel-size={ways.data}", "--api-server-count=1"]
    return options


def _tool_options(engine: EngineSpec) -> list[str]:
    calling, options = engine.tool_calling, []
    if calling is not None and calling.parser is not None:
        options += ["--enable-auto-tool-choice", f"--tool-call-parser={calling.parser}"]
    if calling is not None and calling.reasoning_parser is not None:
        options.append(f"--reasoning-parser={calling.reasoning_parser}")
    return options
