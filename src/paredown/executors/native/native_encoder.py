"""NativeEncoder: turns texts into vectors on the C++ core."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.executors.encoder_checks import check_texts
from paredown.executors.encoder_protocol import EncoderOutput, TokenText
from paredown.executors.native.native_executor import WeightSource
from paredown.executors.native.packed_cache import PackedCache
from paredown.kernels.arithmetic import arithmetic
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ActivationDType


class NativeEncoder:
    """Implements EncoderExecutor. `weights_from` says whether the weights were packed now or mapped
    from an earlier process's file. `activations` is what inputs are rounded to, if somebody chose
    it."""

    def __init__(
        self,
        model: NativeModel,
        kv: KVSpec,
        *,
        weights_from: WeightSource = "checkpoint",
        cache: PackedCache | None = None,
        activations: ActivationDType | None = None,
    ) -> None:
        self._model = model
        self._kv = kv
        self._cache = cache
        self._activations = activations
        self.weights_from = weights_from

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    @property
    def threads(self) -> ThreadPlan:
        return self._model.threads

    @property
    def isa(self) -> str:
        return self._model.isa

    @property
    def weight_bytes(self) -> int:
        """See EncoderExecutor.weight_bytes."""
        return self._model.weight_bytes

    @property
    def step_bytes(self) -> int:
        """The bytes of working memory that texts have taken so far."""
        return self._model.step_bytes

    @property
    def arithmetic(self) -> dict[str, str]:
        """See EncoderExecutor.arithmetic: with the format in which keys and values meet queries."""
        own = arithmetic(self.isa) | {"kv": self._kv.name(self.spec.num_layers)}
        return own if self._activations is None else own | {"activations": self._activations}

    @property
    def known_content(self) -> str | None:
        """See EncoderExecutor.known_content."""
        return None if self._cache is None else self._cache.content

    def wait_for_cache(self) -> None:
        """Waits until the packed weights are on disk, or cannot be written."""
        if self._cache is not None:
            self._cache.wait()

    def encode(
        self, texts: Sequence[TokenText], output: EncoderOutput = "head"
    ) -> npt.NDArray[np.float32]:
        """See EncoderExecutor.encode. Raises ValueError as it does, and for unseen tokens in a
        model whose tokens do not see later ones."""
        check_texts(self.spec, texts)
        tokens, types, lengths = list[int](), list[int](), list[int]()
        has_types = any(text.type_ids is not None for text in texts)
        for text in texts:
            tokens += text.token_ids
            lengths.append(len(text.token_ids))
            if has_types:
                types += (0,) * lengths[-1] if text.type_ids is None else text.type_ids
        has_unseen = any(text.num_unseen for text in texts)
        num_unseen = [text.num_unseen for text in texts] if has_unseen else []
        return self._model.encode(tokens, types, lengths, num_unseen, output)
