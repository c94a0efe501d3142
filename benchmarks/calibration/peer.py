"""llm-compressor at the same task; run by the Python of an environment of its own, in which
paredown is not installed: `python peer.py MODEL TOKENS.npy OUTPUT`. Prints a line of JSON."""

import json
import resource
import sys
import time

import numpy as np
import torch
from datasets import Dataset
from llmcompressor import __version__, oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, tokens: str, output: str) -> None:
    windows_NT = np.load(tokens)
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    dataset = Dataset.from_dict(
        {
            "input_ids": windows_NT.tolist(),
            "attention_mask": np.ones_like(windows_NT).tolist(),
        }
    )
    oneshot(
        model=model,
        processor=tokenizer,
        dataset=dataset,
        recipe=GPTQModifier(targets="Linear", scheme="W4A16", ignore=["lm_head"]),
        max_seq_length=windows_NT.shape[1],
        num_calibration_samples=windows_NT.shape[0],
        shuffle_calibration_samples=False,
        output_dir=output,
    )
    seconds = time.perf_counter() - start
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    versions = f"llmcompressor {__version__}, torch {torch.__version__}"
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes, "versions": versions}))


if __name__ == "__main__":
    main(*sys.argv[1:])
