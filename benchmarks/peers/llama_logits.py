"""llama.cpp's own tokens and logits, with its rounding of inputs alone."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from paredown.errors import CapacityError, CheckpointError

Logits = npt.NDArray[np.float32]
_CONTEXT_TOKENS = 128


def _drop(level: int, text: bytes, data: object) -> None:
    """Drops a line of llama.cpp's log."""


# Kept, because llama.cpp holds the pointer alone.
_ignore = llama_cpp.llama_log_callback(_drop)


def be_quiet() -> None:
    """Silences llama.cpp's log for this process."""
    llama_cpp.llama_log_set(_ignore, None)
    llama_cpp.llama_backend_init()


class LlamaLogits:
    """llama.cpp with keys and values in F32, so that its rounding of inputs alone is seen, and with
    weights as they lie in the file: repacked, version 0.3.36 dies of an illegal instruction
    in some places. Raises CheckpointError for a file that it does not read."""

    def __init__(self, path: Path, *, vocab_only: bool = False, num_threads: int = 1) -> None:
        be_quiet()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False
        parameters.vocab_only = vocab_only
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise CheckpointError(
                "llama.cpp does not read the file", seen=str(path), remedy="See its log."
            )
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._context: Any = None
        if not vocab_only:
            self._context = self._make_context(num_threads)

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        raw = text.encode()
        ids = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(
            self._vocab, raw, len(raw), ids, len(ids), add_special, True
        )
        return list(ids[:count])

    def logits(self, ids: list[int]) -> Logits:
        """The logits of the token after `ids`, [V]."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        return self._next(ids)

    def answer(self, ids: list[int], num_tokens: int) -> tuple[list[int], Logits]:
        """The most likely tokens after `ids`, one after the other, and the logits of each, [T, V].
        The end of an answer does not end it."""
        rows = [self.logits(ids)]
        tokens = [int(rows[0].argmax())]
        while len(tokens) < num_tokens:
            rows.append(self._next(tokens[-1:]))
            tokens.append(int(rows[-1].argmax()))
        return tokens, np.stack(rows)

    def close(self) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def _make_context(self, num_threads: int) -> Any:
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = _CONTEXT_TOKENS
        options.n_threads = options.n_threads_batch = num_threads
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        options.flash_attn_type = 0
        # Windows of layers that have one are not cut: short prompts are within them.
        options.swa_full = True
        context = llama_cpp.llama_init_from_model(self._model, options)
        if not context:
            raise CapacityError("llama.cpp made no context", seen=options, remedy="See its log.")
        return context

    def _next(self, ids: list[int]) -> Logits:
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise CapacityError("llama_decode failed", seen=status, remedy="See its log.")
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, shape=(size,)).copy()
