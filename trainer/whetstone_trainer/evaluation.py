"""Evaluation while training: the rows held out are measured at fixed steps, and the best step may end the training."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_evaluation import EarlyStoppingSpec

from whetstone_trainer.log_history import judge
from whetstone_trainer.prepared import EVALUATION_FILE, PREPARED_FOLDER
from whetstone_trainer.shards import share_out_again


def evaluation_rows(config: TrainingConfig) -> Any:
    """Return the rows that are held out; None where the spec asks for none."""
    if config.evaluation is None:
        return None
    return Dataset.from_file(str(Path(config.workspace_path) / PREPARED_FOLDER / EVALUATION_FILE))


def evaluation_arguments(config: TrainingConfig, *, micro_batch_size: int) -> dict[str, Any]:
    """Return the trainer's arguments for the evaluation.

    Args:
        config: The job's configuration.
        micro_batch_size: Rows per forward pass.
    """
    if config.evaluation is None:
        return {}
    # The last step is always evaluated, by the callback.
    steps = {"eval_strategy": "steps", "eval_steps": config.evaluation.every_steps}
    return {
        "per_device_eval_batch_size": micro_batch_size,
        "prediction_loss_only": True,
        **(steps if config.evaluation.every_steps else {}),
    }


def evaluation_callbacks(config: TrainingConfig) -> list[TrainerCallback]:
    """Return the callbacks that evaluate; none where no rows are held out."""
    return [EvaluationCallback(config.evaluation.early_stopping)] if config.evaluation else []


class EvaluationCallback(TrainerCallback):
    """Evaluates the last step, saves the best one, and stops where the evaluations do not get better.

    Args:
        stopping: When to stop; None to measure only.
    """

    def __init__(self, stopping: EarlyStoppingSpec | None) -> None:
        self._stopping = stopping

    def on_step_end(self, _args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """Ask for an evaluation of the last step."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True

    def on_evaluate(self, _args: Any, state: Any, control: Any, *, model: Any = None, **_kwargs: Any) -> None:
        """Ask for a checkpoint of the best step, and of the step at which the training stops."""
        share_out_again(model)
        if self._stopping is None:
            return
        verdict = judge(state.log_history, self._stopping)
        if verdict.exhausted:
            control.should_training_stop = True
        if verdict.exhausted or verdict.best_step == state.global_step:
            control.should_save = True
