"""Paredown itself, through the executor that serves."""

import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints.cache import Variant, paredown_folder
from benchmarks.peers.peer import LoadOptions, PeerInfo
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import chosen_isa
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import PAGE_SIZE

# Tokens of prompts computed in one step, over all sequences.
CHUNK_TOKENS = 512


class ParedownPeer:
    """Implements Peer."""

    def __init__(self) -> None:
        self._executor: LoadedExecutor | None = None
        self._pages_per_sequence = 0
        self._filled: Sequence[Sequence[int]] = ()

    def info(self) -> PeerInfo:
        return PeerInfo(version=version("paredown"), instruction_sets=chosen_isa())

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        self.close()
        self._pages_per_sequence = -(-options.num_tokens // PAGE_SIZE)
        self._executor = load_executor(
            Checkpoint.open(paredown_folder(root, variant)),
            RunOptions(
                num_pages=self._pages_per_sequence * options.num_sequences,
                threads=ThreadPlan.resolve(options.num_threads),
                kv_dtype=options.kv_dtype,
            ),
        )

    def prefill(self, token_ids: Sequence[int]) -> float:
        self._filled = ()
        started = time.perf_counter()
        self._read(0, token_ids)
        return time.perf_counter() - started

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        executor = self._loaded()
        if self._filled != prompts:
            for sequence, prompt in enumerate(prompts):
                self._read(sequence, prompt)
            self._filled = prompts
        started = time.perf_counter()
        for step in range(num_steps):
            executor.step(
                [
                    self._slice(sequence, [prompt[step % len(prompt)]], len(prompt) + step)
                    for sequence, prompt in enumerate(prompts)
                ]
            )
        return time.perf_counter() - started

    def settings(self) -> dict[str, str]:
        return {"isa": self._loaded().arithmetic["isa"]}

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        self._filled = ()
        last: npt.NDArray[np.float32] = self._read(0, token_ids)[-1]
        return last

    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        return self._loaded().weight_bytes

    def kv_token_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        return self._loaded().kv_token_bytes

    def close(self) -> None:
        self._executor = None
        self._filled = ()

    def _loaded(self) -> LoadedExecutor:
        assert self._executor is not None, "no model is loaded"
        return self._executor

    def _read(self, sequence: int, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        executor = self._loaded()
        tokens = list(token_ids)
        logits = np.empty((0, executor.spec.vocab_size), np.float32)
        for start in range(0, len(tokens), CHUNK_TOKENS):
            chunk = tokens[start : start + CHUNK_TOKENS]
            logits = executor.step([self._slice(sequence, chunk, start)])
        return logits

    def _slice(self, sequence: int, token_ids: list[int], start: int) -> SequenceSlice:
        first = sequence * self._pages_per_sequence
        num_pages = -(-(start + len(token_ids)) // PAGE_SIZE)
        pages = list(range(first, first + num_pages))
        return SequenceSlice(token_ids=token_ids, start=start, pages=pages, num_logits=1)
