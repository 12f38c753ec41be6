"""What is left out of a training's steps changes nothing that is learned."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from whetstone_artifacts.training_choice import Choice, Freedom
from whetstone_trainer.device import lean
from whetstone_trainer.plan import Plan

PLAN = Plan(
    choice=Choice(micro_batch=2, checkpointing=False, memory=None),
    freedom=Freedom(batch_size=2),
    padding_free=False,
    attention="sdpa",
    compiled=False,
    reason="",
)


def model() -> Any:
    """A base in bfloat16 with an adapter in float32, as a GPU has them."""
    torch.manual_seed(0)
    values = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    base = LlamaForCausalLM(LlamaConfig(**values, num_attention_heads=4, num_key_value_heads=2)).to(torch.bfloat16)
    shape = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(base, shape, autocast_adapter_dtype=True)


def step(found: Any) -> tuple[float, dict[str, torch.Tensor], int]:
    """Return loss, gradients and the bytes that one step keeps."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    ids = torch.arange(24).reshape(2, 12) % 50
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.autocast("cpu", torch.bfloat16), hooks:
        loss = found(input_ids=ids, labels=ids).loss
    loss.backward()
    gradients = {name: one.grad.clone() for name, one in found.named_parameters() if one.grad is not None}
    found.zero_grad()
    return float(loss.detach()), gradients, sum(kept.values())


def test_inputs_that_are_not_cast_give_the_same_gradients_with_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = model()
    loss, gradients, kept = step(found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with lean(found, PLAN):
        lean_loss, lean_gradients, lean_kept = step(found)
    assert lean_loss == loss
    assert len(gradients) == 2 * 7 * 2
    assert all(torch.equal(lean_gradients[name], one) for name, one in gradients.items())
    assert lean_kept < kept
    assert step(found)[2] == kept


def test_cudnn_is_allowed_as_planned_and_as_before_afterwards() -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with lean(model(), PLAN):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
