"""OpenVINO GenAI on the CPU, which reads GGUF itself: its continuous batching pipeline, step by
step. A step samples greedily; its prefix cache is off, so that every prompt is computed.

Its weights stay quantized and its activations are quantized as its default has it; float models
are read from an f16 file, because it takes no bf16 one.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino
import openvino_genai

from benchmarks.checkpoints.cache import FloatFormat, Variant, gguf_file
from benchmarks.peers.peer import LoadOptions, PeerInfo, PeerKVDType
from paredown.errors import UnsupportedError

# OpenVINO's CPU plugin has pages of this many tokens.
BLOCK_TOKENS = 32
STEP_TOKENS = 512
KV_PRECISIONS: dict[PeerKVDType, str] = {"bf16": "bf16", "int8": "u8"}


class OpenVINOPeer:
    """Implements Peer."""

    def __init__(self) -> None:
        self._pipeline: Any = None
        self._num_requests = 0
        self._settings: dict[str, str] = {}

    def info(self) -> PeerInfo:
        core = openvino.Core()
        capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return PeerInfo(
            version=openvino_genai.get_version(),
            instruction_sets=f"its CPU plugin says {', '.join(capabilities)}",
        )

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        self.close()
        float_format: FloatFormat = "f16" if variant.format == "bf16" else "bf16"
        path = gguf_file(root, variant, float_format=float_format)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.max_num_seqs = options.num_sequences
        # Some tokens more than asked: sequences that are read first go on while others are read.
        tokens = options.num_tokens + options.num_sequences + BLOCK_TOKENS
        scheduler.num_kv_blocks = (-(-tokens // BLOCK_TOKENS) + 1) * options.num_sequences
        properties = {
            "INFERENCE_NUM_THREADS": options.num_threads,
            # One stream with all threads.
            "PERFORMANCE_HINT": "LATENCY",
            "KV_CACHE_PRECISION": KV_PRECISIONS[options.kv_dtype],
        }
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(path), scheduler, "CPU", properties
        )
        self._settings = {"file": path.name} | {
            name: str(value) for name, value in properties.items()
        }

    def prefill(self, token_ids: Sequence[int]) -> float:
        # The handle is kept until the end: a request whose handle is gone is dropped.
        handle = self._add(token_ids, num_tokens=1)
        started = time.perf_counter()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        elapsed = time.perf_counter() - started
        del handle
        return elapsed

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        # Each has its first token at the end of its prompt, and one more for each prompt that is
        # read after it.
        num_tokens = num_steps + len(prompts) + 2
        handles = [self._add(prompt, num_tokens) for prompt in prompts]
        while not all(handle.can_read() for handle in handles):
            self._pipeline.step()
        started = time.perf_counter()
        for _ in range(num_steps):
            self._pipeline.step()
        elapsed = time.perf_counter() - started
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        return elapsed

    def settings(self) -> dict[str, str]:
        return self._settings

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        raise UnsupportedError(
            "OpenVINO GenAI shows no logits",
            seen=f"{len(token_ids)} tokens",
            remedy="Compare the tokens it generates.",
        )

    def close(self) -> None:
        self._pipeline = None

    def _add(self, token_ids: Sequence[int], num_tokens: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_tokens
        config.ignore_eos = True
        tokens = openvino.Tensor(np.array([token_ids], dtype=np.int64))
        self._num_requests += 1
        return self._pipeline.add_request(self._num_requests, tokens, config)
