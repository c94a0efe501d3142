"""vLLM on a CPU, through its engine: greedy, without a prefix cache, without the end of an answer.

It gives no step by itself, so a decode is what an answer of so many tokens takes beyond one of one
token.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import vllm

from benchmarks.checkpoints.cache import Variant, paredown_folder
from benchmarks.peers.peer import LoadOptions, PeerInfo


class VLLMPeer:
    """Implements Peer."""

    def __init__(self) -> None:
        self._model: Any = None

    def info(self) -> PeerInfo:
        return PeerInfo(version=vllm.__version__, instruction_sets="as vLLM's CPU build chooses")

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        self.close()
        self._model = vllm.LLM(
            model=str(paredown_folder(root, variant)),
            dtype="bfloat16",
            # One more, for the token that ends a prompt's reading.
            max_model_len=options.num_tokens + 1,
            max_num_seqs=options.num_sequences,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
            seed=0,
        )

    def prefill(self, token_ids: Sequence[int]) -> float:
        return self._seconds([token_ids], 1)

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        first = self._seconds(prompts, 1)
        return self._seconds(prompts, 1 + num_steps) - first

    def settings(self) -> dict[str, str]:
        return {}

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        raise NotImplementedError("vLLM gives log-probabilities of few tokens, no logits")

    def close(self) -> None:
        if self._model is not None:
            self._model.llm_engine.engine_core.shutdown()
        self._model = None

    def _seconds(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
        params = vllm.SamplingParams(
            temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
        started = time.perf_counter()
        self._model.generate(asked, params, use_tqdm=False)
        return time.perf_counter() - started
