"""Compares the torch executor on a GPU with Transformers, on models of random weights.

    python -m benchmarks.gpu [--device cuda] [--shape 0.5b 1b] [--batch 1 8] [--json]

For each shape and number of requests: tokens per second of the prompts and of decoding, through the
engine with greedy draws, and the share of the memory bandwidth that decoding reaches (MBU):
weights, and keys and values of a middling context, over what a copy moves in the same run.
Transformers runs the same prompts in float32, as we do, and in bf16.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, Qwen2Config

from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.device import Device
from paredown.spec.kv import PAGE_SIZE

NUM_PROMPT_TOKENS = 512
NUM_DECODE_TOKENS = 64
NUM_ROUNDS = 3
_COPY_BYTES = 2 << 30

SHAPES: dict[str, Callable[[], Any]] = {
    "tiny": lambda: LlamaConfig(
        vocab_size=8192,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    # Qwen2.5-0.5B and Llama-3.2-1B.
    "0.5b": lambda: Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    "1b": lambda: LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One result. `spread` is the largest relative distance of a round's decoding from the
    median."""

    shape: str
    who: str
    batch: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    decode_step_ms: float
    mbu: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class Round:
    prefill_s: float
    decode_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["0.5b", "1b"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    args = parser.parse_args()
    bandwidth = copy_bandwidth(args.device)
    if not args.json:
        name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
        print(f"{name}, PyTorch {torch.__version__}: a copy moves {bandwidth / 1e9:,.0f} GB/s")
    for shape in args.shape:
        for row in measure_shape(shape, args.batch, args.device, bandwidth):
            print(json.dumps(asdict(row)) if args.json else _line(row), flush=True)


def copy_bandwidth(device: Device) -> float:
    """Returns the bytes per second that a copy on the device reads and writes."""
    source = torch.rand(_COPY_BYTES // 4 // (1 if device == "cuda" else 8), device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(6):
        _wait(device)
        started = time.perf_counter()
        target.copy_(source)
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return 2 * 4 * source.numel() / min(seconds)


def measure_shape(
    shape: str, batches: Sequence[int], device: Device, bandwidth: float
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = write_random(shape, Path(folder), device)
        # The first requests continue while the last prompts are computed.
        most_tokens = NUM_PROMPT_TOKENS + NUM_DECODE_TOKENS + 2 * max(batches)
        num_pages = max(batches) * -(-most_tokens // PAGE_SIZE)
        options = RunOptions(executor="torch", device=device, num_pages=num_pages)
        executor = load_executor(Checkpoint.open(path), options)
        step_bytes = {
            batch: executor.weight_bytes + batch * _context() * executor.kv_token_bytes
            for batch in batches
        }
        for batch in batches:
            rounds = [engine_round(executor, batch) for _ in range(NUM_ROUNDS + 1)][1:]
            yield make_row(shape, "paredown fp32", batch, rounds, step_bytes[batch] / bandwidth)
        kv_token_bytes = executor.kv_token_bytes  # in bf16
        del executor
        for dtype, who in (
            (torch.float32, "transformers fp32"),
            (torch.bfloat16, "transformers bf16"),
        ):
            model = cast(Any, AutoModelForCausalLM.from_pretrained(path, dtype=dtype)).to(device)
            weight_bytes = sum(one.numel() * one.element_size() for one in model.parameters())
            for batch in batches:
                rounds = [peer_round(model, batch, device) for _ in range(NUM_ROUNDS + 1)][1:]
                cached = batch * _context() * kv_token_bytes * dtype.itemsize // 2
                floor_s = (weight_bytes + cached) / bandwidth
                yield make_row(shape, who, batch, rounds, floor_s)
            del model


def write_random(shape: str, folder: Path, device: Device) -> Path:
    """Writes a bf16 checkpoint of random weights."""
    torch.manual_seed(0)
    with torch.device(device):
        model = cast(Any, AutoModelForCausalLM).from_config(SHAPES[shape](), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def prompts(batch: int) -> list[list[int]]:
    """Returns prompts that share no page."""
    numbers = torch.randint(100, 8000, (batch, NUM_PROMPT_TOKENS), generator=torch.Generator())
    return [[int(one) for one in row] for row in numbers]


def engine_round(executor: LoadedExecutor, batch: int) -> Round:
    """Steps until each request has its first token and all tokens to decode."""
    config = ScheduleConfig(max_step_tokens=NUM_PROMPT_TOKENS, prefix_cache=False)
    engine = Engine(executor, Tokenizer.open(resolve_model(None)), config)
    params = SamplingParams(max_tokens=None, temperature=0, ignore_eos=True)
    requests = [engine.submit(prompt, params) for prompt in prompts(batch)]
    started = time.perf_counter()
    while any(request.num_generated_tokens == 0 for request in requests):
        engine.step()
    prefilled = time.perf_counter()
    for _ in range(NUM_DECODE_TOKENS):
        engine.step()
    decoded = time.perf_counter()
    assert min(request.num_generated_tokens for request in requests) > NUM_DECODE_TOKENS
    return Round(prefill_s=prefilled - started, decode_s=decoded - prefilled)


def peer_round(model: Any, batch: int, device: Device) -> Round:
    """Decodes greedily with Transformers' forward pass alone, with all prompts in one call."""
    token_ids = torch.tensor(prompts(batch), device=device)
    cache = DynamicCache(config=model.config)
    _wait(device)
    started = time.perf_counter()
    with torch.inference_mode():
        token_ids = _likeliest(model, token_ids, cache)
        token_ids.tolist()
        prefilled = time.perf_counter()
        for _ in range(NUM_DECODE_TOKENS):
            token_ids = _likeliest(model, token_ids, cache)
            token_ids.tolist()
    decoded = time.perf_counter()
    return Round(prefill_s=prefilled - started, decode_s=decoded - prefilled)


def make_row(shape: str, who: str, batch: int, rounds: Sequence[Round], floor_s: float) -> Row:
    """Returns a row; `floor_s` is the time of a step that only reads what it must."""
    steps = [one.decode_s / NUM_DECODE_TOKENS for one in rounds]
    step_s = statistics.median(steps)
    prefill_s = statistics.median(one.prefill_s for one in rounds)
    return Row(
        shape=shape,
        who=who,
        batch=batch,
        prefill_tokens_per_s=batch * NUM_PROMPT_TOKENS / prefill_s,
        decode_tokens_per_s=batch / step_s,
        decode_step_ms=1e3 * step_s,
        mbu=floor_s / step_s,
        spread=max(abs(one - step_s) for one in steps) / step_s,
    )


def _likeliest(model: Any, token_ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """Returns the most likely tokens, [B, 1]."""
    logits: torch.Tensor = model(token_ids, past_key_values=cache, logits_to_keep=1).logits
    return logits[:, -1].argmax(-1, keepdim=True)


def _context() -> int:
    """Returns the tokens of a request halfway through decoding."""
    return NUM_PROMPT_TOKENS + NUM_DECODE_TOKENS // 2


def _wait(device: Device) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _line(row: Row) -> str:
    return (
        f"{row.shape:5} {row.who:18} batch {row.batch:2}: prefill {row.prefill_tokens_per_s:9,.0f}"
        f" tokens/s, decode {row.decode_tokens_per_s:7,.0f} tokens/s ({row.decode_step_ms:.2f} ms"
        f" a step, +-{row.spread:.0%}), MBU {row.mbu:.1%}"
    )


if __name__ == "__main__":
    main()
