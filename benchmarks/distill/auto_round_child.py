"""Tunes a folder's codes with AutoRound, in the interpreter that has it.

    PYTHON auto_round_child.py '{"model", "windows", "iterations", "bits", "group_size", "out"}'

`windows` is a .npy file of token ids, [window, token]. It prints {"seconds", "processor_s"}.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from auto_round import AutoRound
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    asked = json.loads(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(asked["model"])
    windows_NT = torch.from_numpy(np.load(asked["windows"]).astype("int64"))
    rows: Any = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in windows_NT]
    began, used = time.perf_counter(), time.process_time()
    tuned = AutoRound(
        model,
        tokenizer=tokenizer,
        bits=asked["bits"],
        group_size=asked["group_size"],
        sym=asked["symmetric"],
        iters=asked["iterations"],
        nsamples=len(rows),
        seqlen=windows_NT.shape[1],
        batch_size=min(8, len(rows)),
        dataset=torch.utils.data.DataLoader(rows, batch_size=1),
        device_map="cpu",
    )
    tuned.quantize_and_save(asked["out"], format="auto_round")
    seconds, processor_s = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": seconds, "processor_s": processor_s}))


if __name__ == "__main__":
    main()
