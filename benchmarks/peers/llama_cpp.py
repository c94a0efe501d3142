"""llama.cpp through the low-level calls of llama-cpp-python: no sampling, as llama-bench and
llama-batched-bench do it. A prompt's batch is filled before the clock runs.

It runs with the settings that are the fastest here: the first call of each kind tries weights
repacked for the processor (AMX tiles among them) or as they lie in the file, and flash attention
on or off, and keeps the best. Long prompts are read once for each way of attention, and copied to
the other contexts with it.
"""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints.cache import Variant, gguf_file
from benchmarks.peers.peer import LoadOptions, PeerInfo, PeerKVDType
from benchmarks.peers.trials import try_settings
from paredown.errors import CapacityError, CheckpointError

UBATCH_TOKENS = 512
# llama.cpp's own default is f16 for keys and values: as many bytes as bf16, and faster there.
KV_TYPES: dict[PeerKVDType, int] = {
    "bf16": llama_cpp.GGML_TYPE_F16,
    "int8": llama_cpp.GGML_TYPE_Q8_0,
}
# Of a decode's steps, one in so many is enough to see which settings are faster.
TRIAL_SHARE = 8
WARM_UP_TOKENS = 32

# Token, position, sequence, and whether its logits are wanted.
Entry = tuple[int, int, int, bool]


@dataclass(frozen=True, kw_only=True)
class Settings:
    repack: bool
    flash_attention: bool

    @property
    def name(self) -> str:
        repack = "repacked" if self.repack else "as in the file"
        return f"weights {repack}, flash attention {'on' if self.flash_attention else 'off'}"


class Context:
    """A context over a loaded model. Sequences are 0 to `num_sequences` - 1; `unified` keeps the
    keys and values of all of them in one place, where attention looks at the others' too."""

    def __init__(
        self,
        model: Any,
        options: LoadOptions,
        flash_attention: bool,
        *,
        unified: bool = False,
        batch_tokens: int = UBATCH_TOKENS,
    ) -> None:
        parameters = llama_cpp.llama_context_default_params()
        batch_tokens = max(batch_tokens, options.num_sequences)
        # Each sequence has a whole number of 256 tokens to itself.
        parameters.n_ctx = -(-options.num_tokens // 256) * 256 * options.num_sequences
        parameters.n_batch = batch_tokens
        parameters.n_ubatch = UBATCH_TOKENS
        parameters.n_seq_max = options.num_sequences
        parameters.n_threads = options.num_threads
        parameters.n_threads_batch = options.num_threads
        parameters.flash_attn_type = int(flash_attention)
        parameters.type_k = parameters.type_v = KV_TYPES[options.kv_dtype]
        parameters.kv_unified = unified
        parameters.no_perf = True
        self._context = llama_cpp.llama_init_from_model(model, parameters)
        if not self._context:
            raise CapacityError("llama.cpp made no context", seen=options, remedy="See its log.")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(batch_tokens, 0, 1)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._filled: Sequence[Sequence[int]] = ()

    def prefill(self, token_ids: Sequence[int]) -> float:
        self._clear()
        seconds = 0.0
        for entries in self._chunks(0, token_ids):
            self._fill_batch(entries)
            started = time.perf_counter()
            self._decode_batch()
            seconds += time.perf_counter() - started
        return seconds

    def has(self, prompts: Sequence[Sequence[int]]) -> bool:
        """Whether the sequences begin with these prompts."""
        return self._filled == prompts

    def fill(self, prompts: Sequence[Sequence[int]], filled: "Context | None" = None) -> None:
        """The sequences become the prompts: cut back to them, copied from a context that has
        them and the same layout of keys and values, or read."""
        if self.has(prompts):
            for sequence, prompt in enumerate(prompts):
                llama_cpp.llama_memory_seq_rm(self._memory, sequence, len(prompt), -1)
            return
        self._clear()
        for sequence, prompt in enumerate(prompts):
            if filled is not None:
                self._copy(sequence, filled)
            else:
                self._read(sequence, prompt)
        self._filled = prompts

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        """Of the prompts that it was filled with."""
        self.fill(prompts)
        started = time.perf_counter()
        for step in range(num_steps):
            self.run(
                [
                    (prompt[step % len(prompt)], len(prompt) + step, sequence, True)
                    for sequence, prompt in enumerate(prompts)
                ]
            )
        return time.perf_counter() - started

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        self.prefill(token_ids)
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._vocab_size,)).copy()

    def forget(self, sequence: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)
        self._filled = ()

    def _read(self, sequence: int, token_ids: Sequence[int]) -> None:
        for entries in self._chunks(sequence, token_ids):
            self.run(entries)

    def _chunks(self, sequence: int, token_ids: Sequence[int]) -> Iterator[list[Entry]]:
        last = len(token_ids) - 1
        for start in range(0, len(token_ids), UBATCH_TOKENS):
            chunk = token_ids[start : start + UBATCH_TOKENS]
            yield [
                (token, position, sequence, position == last)
                for position, token in enumerate(chunk, start)
            ]

    def _copy(self, sequence: int, filled: "Context") -> None:
        num_bytes = llama_cpp.llama_state_seq_get_size(filled._context, sequence)
        state = (ctypes.c_uint8 * num_bytes)()
        llama_cpp.llama_state_seq_get_data(filled._context, state, num_bytes, sequence)
        done = llama_cpp.llama_state_seq_set_data(self._context, state, num_bytes, sequence)
        if done != num_bytes:
            raise CapacityError("llama.cpp took no copied prompt", seen=done, remedy="See its log.")

    def run(self, entries: Sequence[Entry]) -> None:
        """One call."""
        self._fill_batch(entries)
        self._decode_batch()

    def _fill_batch(self, entries: Sequence[Entry]) -> None:
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted

    def _decode_batch(self) -> None:
        status = llama_cpp.llama_decode(self._context, self._batch)
        llama_cpp.llama_synchronize(self._context)
        if status != 0:
            raise CapacityError("llama_decode failed", seen=status, remedy="See its log.")


def load_model(path: Path, *, repack: bool) -> Any:
    """Raises CheckpointError for a file that llama.cpp does not read."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.use_extra_bufts = repack
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise CheckpointError("llama.cpp does not read the file", seen=path, remedy="See its log.")
    return model


class LlamaCppPeer:
    """Implements Peer."""

    def __init__(self) -> None:
        llama_cpp.llama_backend_init()
        self._models: dict[bool, Any] = {}
        self._contexts: dict[Settings, Context] = {}
        self._loaded: tuple[Path, LoadOptions] | None = None
        # What was found of a file, its options and a task holds when it is loaded again.
        self._found: dict[tuple[tuple[Path, LoadOptions] | None, str], tuple[Settings, str]] = {}
        self._chosen: dict[str, Settings] = {}
        self._tried: dict[str, str] = {}

    def info(self) -> PeerInfo:
        described = llama_cpp.llama_print_system_info().decode()
        return PeerInfo(version=version("llama-cpp-python"), instruction_sets=described)

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        self.close()
        path = gguf_file(root, variant)
        self._loaded = path, options
        for repack in (True, False):
            self._models[repack] = load_model(path, repack=repack)
        # Quantized values need flash attention.
        choices = (True,) if options.kv_dtype == "int8" else (True, False)
        for repack, flash_attention in product(self._models, choices):
            settings = Settings(repack=repack, flash_attention=flash_attention)
            self._contexts[settings] = Context(self._models[repack], options, flash_attention)

    def prefill(self, token_ids: Sequence[int]) -> float:
        if not self._knows("prefill"):
            for context in self._contexts.values():
                context.prefill(token_ids[:WARM_UP_TOKENS])
            self._choose("prefill", lambda context: context.prefill(token_ids))
        return self._contexts[self._chosen["prefill"]].prefill(token_ids)

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        if not self._knows("decode"):
            for settings, context in self._contexts.items():
                context.fill(prompts, self._filled_like(settings, prompts))
                context.decode(prompts, 1)
            num_trial_steps = -(-num_steps // TRIAL_SHARE)
            self._choose("decode", lambda context: context.decode(prompts, num_trial_steps))
        return self._contexts[self._chosen["decode"]].decode(prompts, num_steps)

    def settings(self) -> dict[str, str]:
        return {task: settings.name for task, settings in self._chosen.items()} | self._tried

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        return next(iter(self._contexts.values())).logits(token_ids)

    def close(self) -> None:
        for context in self._contexts.values():
            context.close()
        for model in self._models.values():
            llama_cpp.llama_model_free(model)
        self._contexts, self._models, self._chosen, self._tried = {}, {}, {}, {}

    def _filled_like(self, settings: Settings, prompts: Sequence[Sequence[int]]) -> Context | None:
        """A context that has the prompts, and keys and values as these settings want them: flash
        attention alone decides how they lie."""
        for other, context in self._contexts.items():
            if other.flash_attention == settings.flash_attention and context.has(prompts):
                return context
        return None

    def _knows(self, task: str) -> bool:
        """Whether the fastest settings are chosen."""
        if task not in self._chosen and (self._loaded, task) in self._found:
            self._settle(task, *self._found[self._loaded, task])
        return task in self._chosen

    def _choose(self, task: str, run: Callable[[Context], float]) -> None:
        """Finds the fastest settings for this model and task. The contexts are warm."""
        seconds = try_settings(list(self._contexts), lambda one: run(self._contexts[one]))
        fastest = min(seconds, key=lambda settings: seconds[settings])
        tried = "; ".join(f"{one:.4f} {settings.name}" for settings, one in seconds.items())
        self._found[self._loaded, task] = fastest, tried
        self._settle(task, fastest, tried)

    def _settle(self, task: str, settings: Settings, tried: str) -> None:
        self._chosen[task] = settings
        self._tried[f"{task} seconds tried"] = tried
