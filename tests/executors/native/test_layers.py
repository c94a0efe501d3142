"""The core's model, layer by layer: forms that no layer had before and layers that differ, against
float64, and with the same bits in batches and chunks."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.kernels.linear_source import LinearSource
from references.layers import PlainModel

ISA = supported_isas()[-1]
VOCAB_SIZE = 61
HIDDEN = 48
NUM_PAGES = 24
PAGE_SIZE = 16

Config = dict[str, Any]
NORM = {"kind": "rms", "eps": 1e-5}


def plain_layer() -> Config:
    return {
        "attention": {
            "num_heads": 4,
            "num_kv_heads": 2,
            "head_dim": 16,
            "is_causal": True,
            "window": 0,
            "inverse_frequencies": [0.5**i for i in range(8)],
            "long_inverse_frequencies": [],
            "attention_factor": 1.0,
            "scale": 0.25,
            "max_distance": 0,
            "growth_beta": 0.0,
            "growth_positions": 1,
            "norms_span_heads": False,
            "soft_cap": 0.0,
        },
        "cross": None,
        "mlp": {"size": 80, "gated": True, "activation": "silu"},
        "experts": None,
        "norms": {"attention_norm": NORM, "mlp_norm": NORM},
        "residual": "sequential",
        "residual_multiplier": 1.0,
        "kv_dtype": "fp32",
    }


def plain_config() -> Config:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "max_positions": 128,
        "num_pages": NUM_PAGES,
        "num_sinks": 0,
        "embedding_multiplier": 1.0,
        "num_token_types": 0,
        "embedding_norm": None,
        "has_output": True,
        "output_multiplier": 1.0,
        "output_soft_cap": 0.0,
        "switch_tokens": 0,
        "final_norm": NORM,
        "head": None,
        "layers": [plain_layer(), plain_layer()],
    }


def with_layers(**changes: object) -> Config:
    config = plain_config()
    for layer in config["layers"]:
        layer.update(deepcopy(changes))
    return config


def with_attention(**changes: object) -> Config:
    return with_layers(attention=plain_layer()["attention"] | changes)


def with_norms_over_heads() -> Config:
    config = with_norms("q_norm", "k_norm")
    for layer in config["layers"]:
        layer["attention"]["norms_span_heads"] = True
    return config


def with_norms(*roles: str) -> Config:
    norms: Config = {role: {"kind": "rms", "eps": 1e-6} for role in roles}
    return with_layers(norms=plain_layer()["norms"] | norms)


EXPERTS = {
    "num": 5,
    "num_per_token": 2,
    "size": 32,
    "shared_size": 112,
    "is_normalized": True,
    "gated": True,
    "activation": "silu",
}


def unequal() -> Config:
    """Wide, narrow and with experts, in turn, so that rows of all widths meet in each buffer."""
    config = plain_config()
    wide, narrow, mixed = plain_layer(), plain_layer(), plain_layer()
    wide["attention"] |= {"num_heads": 6, "num_kv_heads": 6, "head_dim": 32, "window": 33}
    wide["mlp"] = {"size": 176, "gated": True, "activation": "gelu_tanh"}
    wide["residual"] = "parallel"
    narrow["attention"] |= {"num_heads": 3, "num_kv_heads": 1, "window": 7}
    narrow["attention"]["soft_cap"] = 0.5
    narrow["attention"]["inverse_frequencies"] = [0.3, 0.1, 0.02]
    narrow["mlp"] = {"size": 16, "gated": False, "activation": "gelu"}
    narrow["norms"] = {
        role: {"kind": "layer", "eps": 1e-6}
        for role in (*narrow["norms"], "attention_output_norm", "mlp_output_norm")
    }
    mixed |= {"mlp": None, "experts": EXPERTS, "residual_multiplier": 0.4}
    few = EXPERTS | {"num": 2, "num_per_token": 1, "size": 48, "shared_size": 0, "gated": False}
    other = plain_layer() | {"mlp": None, "experts": few, "residual": "parallel"}
    other["attention"]["inverse_frequencies"] = []
    config["layers"] = [wide, narrow, mixed, plain_layer(), other]
    config |= {"embedding_multiplier": 3.0, "output_multiplier": 0.25}
    return config


MODELS: dict[str, Callable[[], Config]] = {
    "plain": plain_config,
    "norms of outputs": lambda: with_norms("attention_output_norm", "mlp_output_norm"),
    "norm of queries alone": lambda: with_norms("q_norm"),
    "norms of outputs alone": lambda: with_layers(
        norms={"attention_output_norm": NORM, "mlp_output_norm": NORM}
    ),
    "no norms and experts": lambda: with_layers(norms={}, mlp=None, experts=EXPERTS),
    "parallel": lambda: with_layers(residual="parallel"),
    "parallel with one norm": lambda: with_layers(
        residual="parallel_one_norm", norms={"attention_norm": NORM}
    ),
    "norms over all heads": with_norms_over_heads,
    "queries that grow": lambda: with_attention(growth_beta=0.6, growth_positions=7),
    "turns of another length": lambda: with_attention(attention_factor=1.3),
    "cap of scores": lambda: with_attention(soft_cap=0.3),
    "cap of logits": lambda: plain_config() | {"output_soft_cap": 0.8},
    "a text of few tokens turns as one": lambda: (
        with_attention(long_inverse_frequencies=[0.1] * 8) | {"switch_tokens": 128}
    ),
    "a text of many tokens turns as one": lambda: (
        with_attention(long_inverse_frequencies=[0.3**i for i in range(8)]) | {"switch_tokens": 50}
    ),
    "a quarter of each head turns": lambda: with_attention(inverse_frequencies=[1.0, 0.1]),
    "more than 16 pairs turn": lambda: with_attention(
        num_heads=2, num_kv_heads=1, head_dim=64, inverse_frequencies=[0.8**i for i in range(20)]
    ),
    "no pair turns": lambda: with_attention(inverse_frequencies=[]),
    "scale": lambda: with_attention(scale=0.07),
    "residual multiplier": lambda: with_layers(residual_multiplier=0.22),
    "embedding multiplier": lambda: plain_config() | {"embedding_multiplier": 6.9},
    "output multiplier": lambda: plain_config() | {"output_multiplier": 0.125},
    "experts": lambda: with_layers(mlp=None, experts=EXPERTS),
    "unequal": unequal,
}

# Unequal layers whose pages and weights are in formats of their own, too.
KV_DTYPES = ("int8", "bf16", "fp8", "int4", "fp32")


class Filled:
    """A native model and a plain one with the same random weights."""

    def __init__(self, config: Config, isa: str, dtype: str = "fp32") -> None:
        self.config = config
        self._rng = np.random.default_rng(7)
        self._dtype = dtype
        self._linears: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self._norms: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self.model = _core.Model(config, isa, 2, 3)
        embedding = self._random(VOCAB_SIZE, HIDDEN)
        self.model.set_embedding("fp32", embedding)
        self._add_linear("output", 0, VOCAB_SIZE, HIDDEN)
        self._set_norm("final_norm", 0, HIDDEN)
        for index, layer in enumerate(config["layers"]):
            self._fill_layer(index, layer)
        self.model.check_weights()
        self.plain = PlainModel(
            config=config,
            embedding_VH=embedding.astype(np.float64),
            linears=self._linears,
            norms=self._norms,
        )

    def _fill_layer(self, index: int, layer: Config) -> None:
        form = layer["attention"]
        q_size, kv_size = (form[num] * form["head_dim"] for num in ("num_heads", "num_kv_heads"))
        of_heads = {"q_norm": q_size, "k_norm": kv_size}
        if not form["norms_span_heads"]:
            of_heads = dict.fromkeys(of_heads, form["head_dim"])
        for role in layer["norms"]:
            self._set_norm(role, index, of_heads.get(role, HIDDEN))
        self._add_linear("qkv", index, q_size + 2 * kv_size, HIDDEN)
        self._add_linear("o", index, HIDDEN, q_size)
        if layer["mlp"] is not None:
            self._add_mlp("", index, layer["mlp"])
            return
        experts = layer["experts"]
        self._add_linear("router", index, experts["num"], HIDDEN)
        for expert in range(experts["num"]):
            self._add_mlp(f"experts.{expert}.", index, experts)
        if experts["shared_size"]:
            self._add_linear("shared_gate", index, 1, HIDDEN)
            self._add_mlp("shared.", index, experts | {"size": experts["shared_size"]})

    def _add_mlp(self, owner: str, index: int, form: Config) -> None:
        self._add_linear(f"{owner}up", index, (1 + form["gated"]) * form["size"], HIDDEN)
        self._add_linear(f"{owner}down", index, HIDDEN, form["size"])

    def _add_linear(self, role: str, index: int, num_rows: int, num_columns: int) -> None:
        values = self._random(num_rows, num_columns) / np.float32(np.sqrt(num_columns))
        self._linears[role, index] = values.astype(np.float64)
        arrays: dict[str, npt.NDArray[np.generic]] = {"values": values}
        dtype, activations = "fp32", "fp32"
        if self._dtype == "int8" and role not in ("router", "shared_gate"):
            dtype, activations = "int8", "int8_row"
            arrays["values"] = np.clip(np.rint(values * 40) + 128, 0, 255).astype(np.uint8)
            arrays["scales"] = np.full((num_rows, 1), 1 / 40, np.float32)
        source = LinearSource(
            kind=dtype, activations=activations, group_size=num_columns, arrays=arrays
        )
        self.model.add_linear(role, index, source.fields())

    def _set_norm(self, role: str, index: int, size: int) -> None:
        weight = 1 + self._random(1, size)[0] / 10
        self._norms[role, index] = weight.astype(np.float64)
        self.model.set_norm(role, index, weight.tolist(), [])

    def _random(self, num_rows: int, num_columns: int) -> npt.NDArray[np.float32]:
        return self._rng.normal(size=(num_rows, num_columns)).astype(np.float32)

    def step(self, *slices: tuple[list[int], int, list[int]]) -> list[npt.NDArray[np.float32]]:
        """Logits of all tokens of each slice: its tokens, the first one's position, its pages."""
        lengths = [len(tokens) for tokens, _, _ in slices]
        logits = np.empty((sum(lengths), VOCAB_SIZE), np.float32)
        self.model.step(
            [token for tokens, _, _ in slices for token in tokens],
            [start for _, start, _ in slices],
            lengths,
            lengths,
            [pages for _, _, pages in slices],
            [0] * len(slices),
            [len(OTHER if pages is OTHER_PAGES else TEXT) for _, _, pages in slices],
            [],
            [],
            logits,
        )
        return np.split(logits, np.cumsum(lengths)[:-1])


TEXT = np.random.default_rng(1).integers(0, VOCAB_SIZE, 70).tolist()
OTHER = np.random.default_rng(2).integers(0, VOCAB_SIZE, 41).tolist()
PAGES, OTHER_PAGES = [7, 2, 19, 11, 0], [4, 23, 9]


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_float64(name: str, isa: str) -> None:
    filled = Filled(MODELS[name](), isa)
    (logits,) = filled.step((TEXT, 0, PAGES))
    expected = filled.plain.logits(TEXT)
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_bits_are_the_same_alone_in_a_batch_and_in_chunks(name: str, dtype: str) -> None:
    config = MODELS[name]()
    for layer, kv_dtype in zip(config["layers"], KV_DTYPES, strict=False):
        layer["kv_dtype"] = kv_dtype
    filled = Filled(config, ISA, dtype)
    (alone,) = filled.step((TEXT, 0, PAGES))
    beside, other = filled.step((TEXT, 0, PAGES), (OTHER, 0, OTHER_PAGES))
    assert np.array_equal(beside, alone)
    (other_alone,) = filled.step((OTHER, 0, OTHER_PAGES))
    assert np.array_equal(other, other_alone)
    chunks = []
    for start, end in ((0, 1), (1, 18), (18, 64), (64, 69), (69, 70)):
        chunk, _ = filled.step((TEXT[start:end], start, PAGES), (OTHER, 0, OTHER_PAGES))
        chunks.append(chunk)
    assert np.array_equal(np.concatenate(chunks), alone)


def test_pages_of_unequal_layers_are_copied_whole() -> None:
    filled = Filled(unequal(), ISA)
    (expected,) = filled.step((TEXT, 0, PAGES))
    filled.step((TEXT[:64], 0, [*OTHER_PAGES, 5]))
    filled.model.copy_pages(np.array([4, 12, 23, 13, 9, 14, 5, 15], np.int32))
    filled.step((OTHER, 0, OTHER_PAGES))
    (after,) = filled.step((TEXT[64:], 64, [12, 13, 14, 15, 5]))
    assert np.array_equal(after, expected[64:])


def test_planned_memory_is_the_memory_taken() -> None:
    config = unequal()
    filled = Filled(config, ISA)
    filled.step((TEXT, 0, PAGES), (OTHER, 0, OTHER_PAGES))
    planned = _core.step_bytes(config, 3, len(TEXT) + len(OTHER))
    assert 0.7 * planned < filled.model.step_bytes <= planned


def changed(path: str, value: object) -> Config:
    """The plain config with one field put in or replaced, or taken out (`...`)."""
    config = plain_config()
    target: Any = config
    *owners, last = path.split(".")
    for owner in owners:
        target = target[int(owner)] if owner.isdigit() else target[owner]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("num_layers", 2, "an unknown field 'num_layers' in the config"),
        ("num_sinks", ..., "no field 'num_sinks' in the config"),
        ("hidden_size", "wide", "another type of field 'hidden_size'"),
        ("hidden_size", 40, "hidden_size must be a multiple of 16"),
        ("num_sinks", 3, "sinks want one window of all layers"),
        ("layers", [], "at least one layer"),
        ("layers", [3], "a layer is no dict"),
        ("layers.1.window", 3, "an unknown field 'window' in a layer"),
        ("layers.1.mlp", None, "either an MLP or experts"),
        ("layers.1.experts", EXPERTS, "either an MLP or experts"),
        ("layers.1.residual", "none", "residual 'none' is unknown"),
        ("layers.1.kv_dtype", "int3", "kv_dtype 'int3' is unknown"),
        ("layers.1.norms.middle_norm", NORM, "an unknown field 'middle_norm' in norms"),
        ("layers.1.norms.q_norm", {"kind": "rms"}, "no field 'eps' in a norm"),
        ("layers.1.mlp.size", 24, "the size of an MLP must be a multiple of 16"),
        ("layers.1.mlp.activation", "swish", "activation 'swish' is unknown"),
        ("layers.1.attention.scale", ..., "no field 'scale' in attention"),
        ("layers.1.attention.num_kv_heads", 3, "num_heads must be a multiple of num_kv_heads"),
        ("layers.1.attention.num_kv_heads", 0, "num_heads must be a multiple of num_kv_heads"),
        ("layers.1.attention.head_dim", 24, "head_dim must be a multiple of 16"),
        ("layers.1.attention.window", -1, "a window must be positive"),
        ("layers.1.attention.inverse_frequencies", [0.1] * 9, "more inverse frequencies than"),
    ],
)
def test_configs_that_are_none_are_refused(path: str, value: object, message: str) -> None:
    config = changed(path, value)
    with pytest.raises(ValueError, match=message):
        _core.Model(config, ISA, 1, 1)


def test_weights_that_the_config_does_not_have_are_refused() -> None:
    filled = Filled(with_layers(mlp=None, experts=EXPERTS), ISA)
    with pytest.raises(ValueError, match="the layer's config has no q_norm"):
        filled.model.set_norm("q_norm", 0, [1.0] * 16, [])
    with pytest.raises(ValueError, match="unknown norm role"):
        filled.model.set_norm("middle_norm", 0, [1.0] * HIDDEN, [])
    for role in ("up", "experts.5.up", "experts.05.up", "experts.x.up", "shared.gate"):
        with pytest.raises(ValueError, match="unknown linear role"):
            filled._add_linear(role, 0, 32, HIDDEN)
    with pytest.raises(ValueError, match="no layer 2"):
        filled._add_linear("o", 2, HIDDEN, 64)


def test_weights_of_the_wrong_size_are_refused() -> None:
    filled = Filled(with_norms("q_norm"), ISA)
    filled.model.set_norm("q_norm", 1, [1.0] * 32, [])
    with pytest.raises(ValueError, match="q_norm has the wrong size"):
        filled.model.check_weights()
    with pytest.raises(ValueError, match="one for each kv head"):
        filled.model.set_kv_scales(0, [1.0] * 3, [1.0] * 3)
    filled = Filled(plain_config(), ISA)
    filled._add_linear("down", 1, HIDDEN, 80)
    with pytest.raises(ValueError, match="down has the wrong number of rows"):
        filled.model.check_weights()
