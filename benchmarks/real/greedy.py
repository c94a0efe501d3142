"""Free-running greedy answers of the folders, beside Transformers in float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.real.prompts import NUM_TOKENS, PROMPTS
from benchmarks.real.row import Row, Section
from paredown import LLM, SamplingParams


def our_answers(folder: Path, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """With inputs, keys and values in fp32; the end of an answer does not end it."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    llm = LLM(folder, kv_dtype="fp32", activations="fp32")
    return [one.token_ids for one in llm.generate([list(ids) for ids in prompts], params)]


def their_answers(model: Any, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The most likely tokens of a Transformers model, each taken from its logits."""
    import torch

    answers = []
    with torch.inference_mode():
        for prompt in prompts:
            ids, cache, answer = torch.tensor([list(prompt)]), None, []
            for _ in range(NUM_TOKENS):
                out = model(ids, past_key_values=cache, use_cache=True)
                ids, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
                answer.append(int(ids))
            answers.append(answer)
    return answers


def section(folders: Mapping[str, Path]) -> Section:
    rows = []
    for name, folder in folders.items():
        prompts, theirs = _transformers(folder)
        ours = our_answers(folder, prompts)
        num_same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        rows.append(
            Row(
                name=name,
                asked=f"all {len(PROMPTS)} answers equal",
                found=f"{num_same} of {len(PROMPTS)} equal",
                meets=num_same == len(PROMPTS),
                decides=True,
            )
        )
    return Section(
        title="Greedy answers of the folders beside Transformers",
        protocol=f"{len(PROMPTS)} prompts, {NUM_TOKENS} tokens; each side goes on with its own; "
        "Transformers in float32, ours with inputs, keys and values in fp32.",
        rows=rows,
    )


def _transformers(folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of the prompts, and the answers to them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return prompts, their_answers(model, prompts)
