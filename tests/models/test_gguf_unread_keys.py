"""Every key that llama.cpp knows is read, known as harmless, or refused where it says something."""

from collections.abc import Iterator

import gguf
import numpy as np
import pytest

from paredown.errors import ParedownError, UnsupportedError
from paredown.models.families.table import FAMILIES, OTHER_ARCHITECTURES
from paredown.models.gguf.config import config_from_metadata
from paredown.models.gguf.header import Value
from paredown.models.gguf.unread_keys import HARMLESS

SHAPES = {"token_embd.weight": (258, 64)}
ARCHITECTURES = sorted(
    {one.gguf.architecture for one in (*FAMILIES.values(), *OTHER_ARCHITECTURES) if one.gguf}
)
# Mean nothing without the key that they belong to.
DEPENDENT = ("expert", "rope.scaling.yarn_beta")


def metadata(arch: str, **more: Value) -> dict[str, Value]:
    sizes = {
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 4,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "feed_forward_length": 128,
        "block_count": 2,
        "context_length": 256,
        "attention.sliding_window": 256,
    }
    if arch == "gemma-embedding":
        sizes["attention.sliding_window"] = 64
    has_layer_norms = arch in ("gptneox", "phi2", "bert", "nomic-bert")
    epsilon = "layer_norm_epsilon" if has_layer_norms else "layer_norm_rms_epsilon"
    found: dict[str, Value] = {
        "general.architecture": arch,
        f"{arch}.attention.{epsilon}": np.float32(1e-5),
    }
    if arch.endswith("moe"):
        numbers = {"count": 4, "used_count": 2, "feed_forward_length": 64}
        numbers["shared_feed_forward_length"] = 128
        names = [name for name in numbers if arch == "qwen2moe" or not name.startswith("shared")]
        found |= {f"{arch}.expert_{name}": np.uint32(numbers[name]) for name in names}
    if arch == "gptneox":
        found[f"{arch}.use_parallel_residual"] = True
    found |= {f"{arch}.{key}": np.uint32(value) for key, value in sizes.items()}
    return found | {f"{arch}.{key}": value for key, value in more.items()}


def read(arch: str, **more: Value) -> dict[str, object]:
    return config_from_metadata(metadata(arch, **more), SHAPES, {}, "x.gguf")


def llama_cpp_keys() -> Iterator[str]:
    for group in vars(gguf.constants.Keys).values():
        for key in vars(group).values() if isinstance(group, type) else ():
            if isinstance(key, str) and key.startswith("{arch}."):
                yield key.removeprefix("{arch}.")


KEYS = sorted(key for key in llama_cpp_keys() if "{" not in key)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("key", KEYS)
def test_no_key_of_llama_cpp_is_passed_over(arch: str, key: str) -> None:
    usual = read(arch)
    for value in (np.uint32(3), np.float32(0.37), np.array([3, 5], np.uint32), "other", False):
        try:
            changed = read(arch, **{key: value}) != usual
        except ParedownError:
            changed = True
        if changed:
            return
    assert key in HARMLESS or key.startswith(DEPENDENT)


@pytest.mark.parametrize(
    "neutral",
    [
        {"rope.scaling.attn_factor": np.float32(1)},
        {"rope.scaling.type": "none", "rope.scaling.factor": np.float32(4)},
        {"rope.scaling.type": "linear", "rope.scaling.factor": np.float32(0)},
        {"attention.causal": True},
        {"attention.scale": np.float32(0.25)},
        {"attention.sliding_window": np.uint32(256)},
        {"logit_scale": np.float32(1)},
        {"expert_weights_scale": np.float32(2.5)},
        {"pooling_type": np.uint32(1), "vocab_size": np.uint32(7)},
        {"a.key.of.tomorrow": np.uint32(7)},
    ],
)
def test_neutral_values_change_nothing(neutral: dict[str, Value]) -> None:
    assert read("llama", **neutral) == read("llama")


def test_a_factor_without_a_type_is_linear() -> None:
    linear = {"rope_type": "linear", "factor": 4.0}
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        assert read("llama", **{key: np.float32(4)})["rope_scaling"] == linear


@pytest.mark.parametrize(("arch", "num_experts"), [("qwen2", 4), ("qwen3moe", 0)])
def test_experts_of_an_architecture_without_are_refused(arch: str, num_experts: int) -> None:
    with pytest.raises(UnsupportedError, match=f"expert_count {num_experts}"):
        read(arch, expert_count=np.uint32(num_experts))


@pytest.mark.parametrize("kind", ["adapter", "imatrix", "mmproj"])
def test_files_that_are_no_models_are_named(kind: str) -> None:
    changed = {**metadata("llama"), "general.type": kind}
    with pytest.raises(UnsupportedError, match="holds no model"):
        config_from_metadata(changed, SHAPES, {}, "x.gguf")


def test_a_multiplier_of_linear_positions_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="attn_factor"):
        read("llama", **{"rope.scaling.attn_factor": np.float32(1.19)})


def test_yarn_as_transformers_names_it() -> None:
    fields: dict[str, Value] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": np.float32(4),
        "rope.scaling.original_context_length": np.uint32(64),
        "rope.scaling.attn_factor": np.float32(0.5),
        "rope.scaling.yarn_beta_fast": np.float32(32),
    }
    assert read("llama", **fields)["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "attention_factor": pytest.approx(0.5 * 1.1386294),
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


@pytest.mark.parametrize("key", ["yarn_log_multiplier", "yarn_ext_factor", "yarn_beta_slow"])
def test_yarn_of_other_kinds_is_refused(key: str) -> None:
    fields = {"rope.scaling.type": "yarn", f"rope.scaling.{key}": np.float32(0.3)}
    with pytest.raises(UnsupportedError, match=key):
        read("llama", **fields)
