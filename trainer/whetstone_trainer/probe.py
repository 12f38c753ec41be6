"""The recorded effect of an adapter: log-probabilities of fixed answers, under the base and under base plus adapter.

A server that holds the adapter measures the same sequences; adapter minus base must come out as recorded. The noise
is measured too: batches of one against one padded batch of all, which round differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from whetstone_api.adapter_artifact import Probe, ProbeCase

from whetstone_trainer.render import IGNORED

CASES = 4
MAX_TOKENS = 200
"""Longest probe sequence, prompt and answer."""
MAX_ANSWER = 64
"""Longest probed answer in tokens."""
MIN_NOISE = 1e-4
"""Other kernels than the trainer's differ by about this much in float32, however well it agrees with itself."""


@dataclass(frozen=True, kw_only=True)
class ProbeSequence:
    """A probe sequence.

    Args:
        token_ids: Prompt and answer.
        answer_start: Index of the answer's first token, at least 1.
    """

    token_ids: list[int]
    answer_start: int


def choose_sequences(rows: Any) -> list[ProbeSequence]:
    """Choose up to `CASES` sequences, spread over the rows: the first answer of a row and what comes before it.

    Args:
        rows: Prepared rows (columns `input_ids`, `labels`).
    """
    count = min(CASES, len(rows))
    chosen: list[ProbeSequence] = []
    for number in (index * len(rows) // count for index in range(count)):
        row = rows[number]
        sequence = first_answer(row["input_ids"], row["labels"])
        if sequence not in chosen:
            chosen.append(sequence)
    return chosen


def first_answer(input_ids: Sequence[int], labels: Sequence[int]) -> ProbeSequence:
    """Cut a row to its first answer, at most `MAX_ANSWER` of `MAX_TOKENS` tokens; a long prompt loses its start.

    Args:
        input_ids: Token ids of a row.
        labels: Their labels, `IGNORED` where no loss counts.
    """
    start = next(index for index, label in enumerate(labels) if label != IGNORED)
    end = next((index for index in range(start, len(labels)) if labels[index] == IGNORED), len(labels))
    end = min(end, start + MAX_ANSWER)
    first = max(0, end - MAX_TOKENS)
    return ProbeSequence(token_ids=list(input_ids[first:end]), answer_start=start - first)


def record_probe(model: Any, sequences: Sequence[ProbeSequence], *, base_fingerprint: str) -> Probe:
    """Measure the sequences with and without the adapter.

    Args:
        model: PEFT model with the adapter active.
        sequences: What to measure.
        base_fingerprint: Fingerprint of the base model's folder.
    """
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        adapter, adapter_noise = _measure_with_noise(model, sequences)
        with model.disable_adapter():
            base, base_noise = _measure_with_noise(model, sequences)
    model.train(was_training)
    dtype = str(next(p for n, p in model.named_parameters() if "lora_" not in n).dtype).removeprefix("torch.")
    return Probe(
        base_fingerprint=base_fingerprint,
        dtype=dtype,
        noise=max(MIN_NOISE, adapter_noise, base_noise),
        cases=[
            ProbeCase(
                token_ids=sequence.token_ids,
                answer_start=sequence.answer_start,
                base_logprobs=base[index],
                adapter_logprobs=adapter[index],
            )
            for index, sequence in enumerate(sequences)
        ],
    )


def measure(model: Any, sequences: Sequence[ProbeSequence]) -> list[list[float]]:
    """Return the natural log-probability of each answer token, each sequence measured alone."""
    return [_logprobs(model, [sequence])[0] for sequence in sequences]


def _measure_with_noise(model: Any, sequences: Sequence[ProbeSequence]) -> tuple[list[list[float]], float]:
    """Return the log-probabilities measured one by one, and their largest difference from one padded batch."""
    single = measure(model, sequences)
    batched = _logprobs(model, sequences)
    noise = max(
        abs(one - other)
        for alone, together in zip(single, batched, strict=True)
        for one, other in zip(alone, together, strict=True)
    )
    return single, noise


def _logprobs(model: Any, sequences: Sequence[ProbeSequence]) -> list[list[float]]:
    """Return the natural log-probability of each answer token, per sequence, from one right-padded batch."""
    longest = max(len(sequence.token_ids) for sequence in sequences)
    ids = torch.zeros((len(sequences), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, sequence in enumerate(sequences):
        ids[index, : len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
        mask[index, : len(sequence.token_ids)] = 1
    logits = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits
    result: list[list[float]] = []
    for index, sequence in enumerate(sequences):
        start, end = sequence.answer_start, len(sequence.token_ids)
        # The logits at a position predict the token after it.
        answer = torch.log_softmax(logits[index, start - 1 : end - 1].float(), dim=-1)
        targets = ids[index, start:end].to(answer.device).unsqueeze(1)
        result.append([float(value) for value in answer.gather(1, targets).squeeze(1)])
    return result
