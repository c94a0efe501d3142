"""A whole model in float64, from the config that the native core takes: all tokens at once, and no
pages.

Letters: T tokens, V vocabulary, H hidden, D head_dim.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Config = Mapping[str, Any]

ACTIVATIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True, kw_only=True)
class PlainModel:
    """`linears` and `norms` by role and layer."""

    config: Config
    embedding_VH: Doubles
    linears: Mapping[tuple[str, int], Doubles]
    norms: Mapping[tuple[str, int], Doubles]

    def logits(self, token_ids: list[int]) -> Doubles:
        """[T, V] of one text from its beginning."""
        x_TH = self.embedding_VH[token_ids] * self.config["embedding_multiplier"]
        for index, layer in enumerate(self.config["layers"]):
            x_TH = self._layer(x_TH, index, layer)
        x_TH = normed(self.config["final_norm"], x_TH, self.norms["final_norm", 0])
        logits_TV = x_TH @ self.linears["output", 0].T * self.config["output_multiplier"]
        return capped(logits_TV, self.config["output_soft_cap"])

    def _layer(self, x_TH: Doubles, index: int, layer: Config) -> Doubles:
        def norm(role: str, x: Doubles) -> Doubles:
            form = layer["norms"].get(role)
            return x if form is None else normed(form, x, self.norms[role, index])

        def mlp(x: Doubles) -> Doubles:
            is_one = layer["residual"] == "parallel_one_norm"
            return self._mlp(norm("attention_norm" if is_one else "mlp_norm", x), index, layer)

        multiplier = layer["residual_multiplier"]
        attended = self._attention(norm("attention_norm", x_TH), index, layer, norm)
        attended = multiplier * norm("attention_output_norm", attended)
        mlp_input = x_TH + attended if layer["residual"] == "sequential" else x_TH
        return x_TH + attended + multiplier * norm("mlp_output_norm", mlp(mlp_input))

    def _attention(
        self, x_TH: Doubles, index: int, layer: Config, norm: Callable[[str, Doubles], Doubles]
    ) -> Doubles:
        form = layer["attention"]
        num_heads, num_kv_heads = form["num_heads"], form["num_kv_heads"]
        qkv = (x_TH @ self.linears["qkv", index].T).reshape(len(x_TH), -1, form["head_dim"])
        q, k, v = np.split(qkv, [num_heads, num_heads + num_kv_heads], axis=1)
        if form["norms_span_heads"]:
            q, k = (
                norm(role, heads.reshape(len(x_TH), -1)).reshape(heads.shape)
                for role, heads in (("q_norm", q), ("k_norm", k))
            )
        else:
            q, k = norm("q_norm", q), norm("k_norm", k)
        is_long = 0 < self.config["switch_tokens"] < len(x_TH)
        by = form["long_inverse_frequencies" if is_long else "inverse_frequencies"]
        rounds = np.arange(len(x_TH)) // form["growth_positions"]
        growth = 1 + form["growth_beta"] * np.log(1 + rounds)
        q = turned(q, by, form["attention_factor"]) * form["scale"] * growth[:, None, None]
        k = turned(k, by, form["attention_factor"])
        distances = np.subtract.outer(np.arange(len(x_TH)), np.arange(len(x_TH)))
        is_seen = (distances >= 0) & (distances < (form["window"] or len(x_TH)))
        outputs = []
        for head in range(num_heads):
            kv_head = head // (num_heads // num_kv_heads)
            scores = capped(q[:, head] @ k[:, kv_head].T, form["soft_cap"])
            outputs.append(softmax(np.where(is_seen, scores, -np.inf)) @ v[:, kv_head])
        return np.concatenate(outputs, axis=1) @ self.linears["o", index].T

    def _mlp(self, x_TH: Doubles, index: int, layer: Config) -> Doubles:
        if layer["experts"] is None:
            return self._dense(x_TH, index, "", layer["mlp"])
        form = layer["experts"]
        shares = softmax(x_TH @ self.linears["router", index].T)
        output_TH = np.zeros_like(x_TH)
        for t, row in enumerate(shares):
            chosen = np.argsort(-row, kind="stable")[: form["num_per_token"]]
            total = row[chosen].sum() if form["is_normalized"] else 1.0
            for expert in chosen:
                added = self._dense(x_TH[t : t + 1], index, f"experts.{expert}.", form)
                output_TH[t] += row[expert] / total * added[0]
        if form["shared_size"]:
            gate = 1 / (1 + np.exp(-x_TH @ self.linears["shared_gate", index].T))
            output_TH += gate * self._dense(x_TH, index, "shared.", form)
        return output_TH

    def _dense(self, x: Doubles, index: int, owner: str, form: Config) -> Doubles:
        up = x @ self.linears[f"{owner}up", index].T
        activation = ACTIVATIONS[form["activation"]]
        if form["gated"]:
            gate, up = np.split(up, 2, axis=1)
            inner = activation(gate) * up
        else:
            inner = activation(up)
        return inner @ self.linears[f"{owner}down", index].T


def normed(form: Config, x: Doubles, weight: Doubles) -> Doubles:
    """RMSNorm or LayerNorm without a bias, over the last axis."""
    if form["kind"] == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + form["eps"]) * weight


def turned(x: Doubles, inverse_frequencies: list[float], factor: float) -> Doubles:
    """Heads [T, heads, D] turned by their positions, pairs (d, d + count) of the first dimensions
    (rotate-half form over that share of a head)."""
    count = len(inverse_frequencies)
    angles = np.multiply.outer(np.arange(len(x)), np.array(inverse_frequencies))[:, None, :]
    first, second, rest = np.split(x, [count, 2 * count], axis=-1)
    cos, sin = np.cos(angles) * factor, np.sin(angles) * factor
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def capped(x: Doubles, cap: float) -> Doubles:
    return cap * np.tanh(x / cap) if cap else x


def softmax(scores: Doubles) -> Doubles:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Doubles = weights / weights.sum(axis=-1, keepdims=True)
    return result
