"""A context of llama.cpp that encodes texts, through the low-level calls of llama-cpp-python."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from benchmarks.encoders.peers.llama_cpp_choices import CALL_TEXTS, CALL_TOKENS
from paredown.errors import CapacityError, RequestError

TokenIds = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]


class Context:
    """A context over a loaded model, and the arrays of a batch, which are filled without copies.
    The model must outlive it."""

    def __init__(self, model: Any, num_threads: int, flash_attention: bool) -> None:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = CALL_TOKENS
        parameters.n_seq_max = max(CALL_TEXTS)
        parameters.n_threads = parameters.n_threads_batch = num_threads
        parameters.flash_attn_type = int(flash_attention)
        parameters.kv_unified = True
        parameters.embeddings = True
        parameters.no_perf = True
        self._context = llama_cpp.llama_init_from_model(model, parameters)
        if not self._context:
            raise CapacityError("llama.cpp made no context", seen=model, remedy="See its log.")
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self._size = llama_cpp.llama_model_n_embd(model)
        self._tokens, self._positions, self._texts = np.zeros((3, CALL_TOKENS), np.int32)
        self._ones = np.ones(CALL_TOKENS, np.int32)
        self._wanted = np.ones(CALL_TOKENS, np.int8)
        int32 = ctypes.POINTER(ctypes.c_int32)
        base = self._texts.ctypes.data
        addresses = (base + self._texts.itemsize * i for i in range(CALL_TOKENS))
        self._text_of = (int32 * CALL_TOKENS)(*(ctypes.cast(one, int32) for one in addresses))
        self._batch = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(int32),
            pos=self._positions.ctypes.data_as(int32),
            n_seq_id=self._ones.ctypes.data_as(int32),
            seq_id=self._text_of,
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def token_ids(self, text: str) -> TokenIds:
        """Returns the tokens of a text, special ones included."""
        found = np.empty(CALL_TOKENS, np.int32)
        pointer = found.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        written = text.encode()
        count = llama_cpp.llama_tokenize(
            self._vocab, written, len(written), pointer, CALL_TOKENS, True, False
        )
        if count < 0:
            raise RequestError(
                "a text has too many tokens", seen=-count, remedy=f"At most {CALL_TOKENS}."
            )
        return found[:count]

    def vectors(self, texts: Sequence[TokenIds]) -> Vectors:
        """Returns the pooled vectors of one call, [B, D]."""
        end = 0
        for number, token_ids in enumerate(texts):
            start, end = end, end + len(token_ids)
            self._tokens[start:end] = token_ids
            self._positions[start:end] = np.arange(len(token_ids))
            self._texts[start:end] = number
        self._batch.n_tokens = end
        status = llama_cpp.llama_encode(self._context, self._batch)
        llama_cpp.llama_synchronize(self._context)
        if status != 0:
            raise CapacityError("llama_encode failed", seen=status, remedy="See its log.")
        found = np.empty((len(texts), self._size), np.float32)
        for number in range(len(texts)):
            pointer = llama_cpp.llama_get_embeddings_seq(self._context, number)
            found[number] = np.ctypeslib.as_array(pointer, shape=(self._size,))
        return found
