"""A tiny Llama and jobs that train it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.trainer_job import Job, byte_tokenizer


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama: two layers of width 32, context 256."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def make_job(tmp_path: Path, model_folder: Path) -> Callable[[str], Job]:
    """Make jobs on the tiny model by name."""

    def make(name: str) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        return Job(folder, model_folder)

    return make


@pytest.fixture
def job(make_job: Callable[[str], Job]) -> Job:
    """One job on the tiny model."""
    return make_job("job")
