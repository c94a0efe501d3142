"""A deterministic encoder for tests: a token's vector is drawn from the token, its type and its
place, and a text's vector is the mean of those of its tokens.

Scripts say which tokens make it fail, and when it may go on.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fakes.specs import flat_spec
from paredown.executors.encoder_protocol import EncoderOutput, TokenText
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.head import Head, HeadStep
from paredown.spec.model import ModelSpec
from paredown.spec.rotary import Rotary

EMBEDDING = Head(kind="embedding", pooling=("mean",), is_normalized=True)
TOKEN_VECTORS = Head(kind="token_vectors", is_normalized=True)
SPARSE = Head(kind="sparse", pooling=("max_log_relu",))


def classifier(num_labels: int) -> Head:
    return Head(kind="classification", pooling=("cls",), steps=(HeadStep(size=num_labels),))


def encoder_spec(head: Head, *, vocab_size: int = 512, max_positions: int = 64) -> ModelSpec:
    plain = flat_spec(
        family="toy",
        vocab_size=vocab_size,
        hidden_size=32,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=32,
        intermediate_size=8,
        max_positions=max_positions,
        positions=Rotary(theta=10000.0),
        norm="layer",
        norm_eps=1e-5,
        activation="gelu",
        gated=False,
    )
    return replace(plain, output=None, head=head)


@dataclass
class ScriptedEncoder:
    """`fails_at` are tokens at which a batch fails, `nan_at` tokens that make their text's numbers
    NaN; `may_go_on` is waited for before each batch. `batches` has what was encoded."""

    spec: ModelSpec = field(default_factory=lambda: encoder_spec(EMBEDDING))
    fails_at: Collection[int] = ()
    nan_at: Collection[int] = ()
    may_go_on: threading.Event | None = None
    batches: list[list[tuple[int, ...]]] = field(default_factory=list)
    threads: ThreadPlan = field(default_factory=lambda: ThreadPlan.resolve(1))
    weight_bytes: int = 1000
    arithmetic: dict[str, str] = field(default_factory=dict)
    known_content: str | None = None

    def encode(
        self, texts: Sequence[TokenText], output: EncoderOutput = "head"
    ) -> npt.NDArray[np.float32]:
        if self.may_go_on is not None:
            assert self.may_go_on.wait(10)
        self.batches.append([tuple(text.token_ids) for text in texts])
        tokens = [self._tokens(text, output) for text in texts]
        head = self.spec.head
        if output == "tokens" or head is None or not head.pooling:
            return np.concatenate(tokens)
        rows = np.stack([one.mean(0, dtype=np.float32) for one in tokens])
        if head.is_normalized:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def _tokens(self, text: TokenText, output: EncoderOutput) -> npt.NDArray[np.float32]:
        head, size = self.spec.head, self.spec.hidden_size
        if output == "head" and head is not None:
            size = self.spec.vocab_size if head.kind == "sparse" else head.output_size(size)
        if any(token_id in self.fails_at for token_id in text.token_ids):
            raise ValueError("scripted to fail")
        types = text.type_ids or [0] * len(text.token_ids)
        rows = []
        for place, (token_id, type_id) in enumerate(zip(text.token_ids, types, strict=True)):
            row = np.random.default_rng((token_id, type_id, place)).standard_normal(size)
            if token_id in self.nan_at:
                row[0] = np.nan
            rows.append(row)
        found = np.array(rows, np.float32)
        if output == "head" and head is not None and head.kind == "token_vectors":
            found /= np.linalg.norm(found, axis=1, keepdims=True)
        return np.maximum(found, 0) if head is not None and head.kind == "sparse" else found
