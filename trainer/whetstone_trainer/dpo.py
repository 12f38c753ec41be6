"""Direct preference optimisation by TRL's DPOTrainer on pairs that are tokenized and masked already.

TRL scores every token after the prompt, results of tools included; here each side has its own labels. The reference is
the base model, with the adapter off; for a job that goes on from an adapter, it is a frozen copy of that one. The spec
may name another model, an adapter, or both.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.nn.utils.rnn import pad_sequence
from trl import DPOConfig, DPOTrainer
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_preference import LossType, PreferenceSpec

from whetstone_trainer.base_model import load_model
from whetstone_trainer.init_adapter import folds
from whetstone_trainer.render import IGNORED
from whetstone_trainer.rows_file import PAIR_COLUMNS

LOSSES = {
    LossType.SIGMOID: "sigmoid",
    LossType.SIGMOID_NORM: "sigmoid_norm",
    LossType.HINGE: "hinge",
    LossType.IPO: "ipo",
    LossType.APO_ZERO: "apo_zero",
    LossType.APO_DOWN: "apo_down",
    LossType.BCO_PAIR: "bco_pair",
    LossType.NCA_PAIR: "nca_pair",
    LossType.SPPO_HARD: "sppo_hard",
    LossType.SFT: "sft",
}
"""TRL's names of the losses."""
POLICY, REFERENCE = "default", "ref"
"""Names that TRL gives the trained adapter and the frozen one in the model."""
REWARDS = {"rewardAccuracy": "rewards/accuracies", "rewardMargin": "rewards/margins"}
"""Our names of the figures that TRL logs of the rewards."""


def dpo_trainer(*, preference: PreferenceSpec, arguments: dict[str, Any], **parts: Any) -> DPOTrainer:
    """Return the trainer.

    Args:
        preference: How pairs are compared.
        arguments: The common arguments of a training.
        parts: Model, rows, tokenizer, adapter's shape and callbacks, as TRL's trainers take them.
    """
    config = DPOConfig(
        **arguments,
        max_length=None,
        pad_to_multiple_of=None,
        loss_type=[LOSSES[loss.type] for loss in preference.losses],
        loss_weights=[float(loss.weight) for loss in preference.losses],
        beta=float(preference.beta),
        # TRL would switch off the adapter's dropout too, which the spec asks for.
        disable_dropout=False,
    )
    tokenizer = parts["processing_class"]
    padding = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return PairTrainer(args=config, data_collator=PairCollator(padding), **parts)


def load_reference_model(config: TrainingConfig) -> Any:
    """Load the reference model that the spec names, with its adapter merged in; None where it is the base model.

    An adapter of the base model needs no second one, unless the base that is trained on has another adapter in it.

    Args:
        config: The job's configuration.
    """
    places = config.reference
    if places is None or (places.model_path is None and not folds(config)):
        return None
    model = load_model(config.model_copy(update={"base_model_path": places.model_path or config.base_model_path}))
    if places.adapter_path is None:
        return model
    return PeftModel.from_pretrained(model, places.adapter_path).merge_and_unload()


def reward_metrics(history: Sequence[Mapping[str, Any]], *, steps: int) -> dict[str, str]:
    """Return the rewards of the last steps as decimals: rewardAccuracy, rewardMargin; nothing for another method.

    Args:
        history: Log of all steps.
        steps: Steps over which to average.
    """
    found: dict[str, str] = {}
    for name, key in REWARDS.items():
        values = [float(entry[key]) for entry in history if key in entry and "loss" in entry][-steps:]
        if values:
            found[name] = f"{sum(values) / len(values):.4f}"
    return found


def drop_reference(model: Any) -> None:
    """Take the frozen reference out of a PEFT model, so that only what was trained is measured and published."""
    if REFERENCE in model.peft_config:
        model.delete_adapter(REFERENCE)


class PairCollator:
    """Batches pairs: the chosen sides first, then the rejected ones in the same order.

    Args:
        padding: Token id that fills up shorter rows, which are neither read nor scored there.
    """

    def __init__(self, padding: int) -> None:
        self._padding = padding

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `attention_mask` and `completion_mask`, which is 1 where a token is scored."""
        sides = [(row["input_ids"], row["labels"]) for row in rows]
        sides += [(row["rejected_ids"], row["rejected_labels"]) for row in rows]
        ids = [torch.tensor(tokens) for tokens, _ in sides]
        scored = [torch.tensor([int(label != IGNORED) for label in labels]) for _, labels in sides]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self._padding),
            "attention_mask": pad_sequence([torch.ones_like(one) for one in ids], batch_first=True),
            "completion_mask": pad_sequence(scored, batch_first=True),
        }


class PairTrainer(DPOTrainer):
    """TRL's trainer on prepared pairs, whose frozen reference is neither saved, nor trained, nor dropped out.

    Args:
        reference_adapter: Folder of an adapter of the base model that is the reference; None for TRL's choice.
        parts: Arguments of TRL's trainer; with `ref_model`, that is the reference.
    """

    def __init__(self, *, reference_adapter: str | None = None, **parts: Any) -> None:
        super().__init__(**parts)
        if reference_adapter is not None and self.ref_model is None:
            drop_reference(self.model)
            self.model.load_adapter(reference_adapter, REFERENCE, is_trainable=False)
        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.Dropout) and not name.endswith(f"lora_dropout.{POLICY}"):
                module.p = 0.0
        for name, parameter in self.model.named_parameters():
            if f".{REFERENCE}." in name:
                parameter.requires_grad_(False)

    def _prepare_dataset(self, dataset: Any, *_arguments: Any, **_named: Any) -> Any:
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = list(PAIR_COLUMNS)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        # Transformers would read this one back from a checkpoint, and then not the trained one.
        shutil.rmtree(Path(output_dir or self.args.output_dir) / REFERENCE, ignore_errors=True)
