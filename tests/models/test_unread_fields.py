"""Every field that a config class of Transformers has is read, harmless, told of or refused."""

import contextlib
import json
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from drivers.shared_data import data_folder, needs_data
from fakes import tiny_encoders, tiny_models, tiny_t5
from fakes.tiny_models import make_model
from paredown.errors import ParedownError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import read_config
from paredown.models.families.known_fields import HARMLESS, NEUTRAL, SWITCHES
from paredown.models.families.table import FAMILIES
from paredown.models.unread_fields import is_harmless

RUN = [name for name, family in FAMILIES.items() if family.left_out is None]
# Have a use beside another field alone, which the tests of their families and those below set.
DEPENDENT = {
    "sliding_window", "sliding_window_size", "attention_window_size", "window_size",
    "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers",
    "use_sliding_window", "max_window_layers", "layer_types", "no_rope_layer_interval",
    "rope_theta", "partial_rotary_factor", "hidden_act", "time_step_limit", *SWITCHES,
}  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts")
OTHER_VALUES = (0.37, 3, True, False, "other", [3, 5], {"a": 0.37}, None)


@cache
def fields_of_transformers() -> tuple[str, ...]:
    """The fields of all classes of models that write text."""
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            try:
                found |= set(CONFIG_MAPPING[model_type]().to_dict())
            # Some cannot be made without their parts.
            except Exception:
                continue
    return tuple(sorted(found))


@cache
def written(family: str) -> str:
    """The config.json of a tiny model."""
    config_class, _, sizes = {
        **tiny_models.CLASSES,
        **tiny_encoders.CLASSES,
        **tiny_t5.CLASSES,
    }[family]
    config: PreTrainedConfig = config_class(**sizes)
    return config.to_json_string(use_diff=False)


def config(family: str, **changes: object) -> dict[str, object]:
    return {**json.loads(written(family)), **changes}


@pytest.mark.parametrize("family", RUN)
def test_a_class_of_transformers_has_no_field_that_is_not_known(family: str) -> None:
    """As Transformers writes it, and as its class is without any value."""
    assert read_config(config(family))[1] == ()
    if family != "granitemoehybrid":  # whose class is a mixture by default
        assert read_config(CONFIG_MAPPING[family]().to_dict())[1] == ()


@pytest.mark.parametrize("family", RUN)
def test_no_field_of_transformers_is_passed_over_in_silence(family: str) -> None:
    usual = read_config(config(family))
    # An encoder's output layer belongs to its head.
    of_heads = () if usual[0].generates else ("tie_word_embeddings",)
    silent = []
    for name in fields_of_transformers():
        if is_harmless(name) or name in (*DEPENDENT, *of_heads) or name.startswith("mamba_"):
            continue
        if not any(says_something(family, name, value, usual) for value in OTHER_VALUES):
            silent.append(name)
    assert silent == []


def says_something(family: str, name: str, value: object, usual: object) -> bool:
    try:
        return read_config(config(family, **{name: value})) != usual
    except ParedownError:
        return True


CHANGING = {
    "clip_qkv": 8.0,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "logits_scaling": 8.0,
    "logit_scale": 0.0625,
    "residual_multiplier": 0.22,
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.0078125,
    "query_pre_attn_scalar": 24,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "rope_local_base_freq": 10_000.0,
    "rope_interleaved": True,
    "no_rope_layers": [1, 0],
    "use_qk_norm": True,
    "use_bidirectional_attention": True,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "alibi": True,
    "num_local_experts": 8,
    "n_routed_experts": 64,
    "kv_lora_rank": 512,
    "layers_block_type": ["mamba", "attention"],
    "use_parallel_residual": True,
    "head_dim": 8,
    "num_attention_heads": 8,
}


# What is so there anyway.
TRUE_ALREADY = (("phi", "use_parallel_residual"), ("qwen2", "sliding_window"))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (family, name)
        for family in ("llama", "qwen2", "gemma", "phi", "gpt2", "opt")
        for name in CHANGING
        if (family, name) not in TRUE_ALREADY
    ],
)
def test_a_field_of_another_family_is_refused(family: str, name: str) -> None:
    """Or read, where the family has it too."""
    told = refusal_of(config(family, **{name: CHANGING[name]}))
    if told is None:
        changed = read_config(config(family, **{name: CHANGING[name]}))[0]
        assert changed != read_config(config(family))[0]
    else:
        assert name in told or "heads" in told
        assert "config.json" in told


def refusal_of(fields: dict[str, object]) -> str | None:
    try:
        read_config(fields)
    except ParedownError as error:
        return str(error)
    return None


def test_the_refusal_names_file_field_value_and_remedy() -> None:
    with pytest.raises(UnsupportedError) as caught:
        read_config(config("llama", clip_qkv=8.0))
    assert str(caught.value) == (
        "config.json sets 'clip_qkv', which is not applied to the family 'llama' here (saw: 8.0). "
        "Take clip_qkv out of config.json if the model was trained without it, or set the "
        "model_type of a family that has it."
    )


@pytest.mark.parametrize("family", RUN)
def test_neutral_values_change_nothing(family: str) -> None:
    usual = read_config(config(family))
    has = json.loads(written(family))
    for name, values in NEUTRAL.items():
        for value in (None, *values):
            if name in EXPERTS and any(one in has for one in EXPERTS):
                continue
            if name not in has and not name.startswith("rope_"):
                assert says_the_same(family, name, value, usual), (name, value)


def says_the_same(family: str, name: str, value: object, usual: object) -> bool:
    """Whether the field changes nothing; one that the family has may be refused."""
    try:
        return read_config(config(family, **{name: value})) == usual
    except UnsupportedError as error:
        return "not applied" not in str(error)
    except ParedownError:
        return True


SAME_IN_OTHER_WORDS = [
    ("llama", {"n_embd": 64, "n_layer": 2, "n_head": 4, "layer_norm_eps": 1e-3}),
    ("llama", {"layer_types": ["full_attention"] * 2, "no_rope_layers": [1, 1]}),
    ("llama", {"sliding_window": 128, "query_pre_attn_scalar": 16, "attention_multiplier": 0.25}),
    ("llama", {"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 1}),
    ("llama", {"num_local_experts": 0, "num_experts_per_tok": 2, "scoring_func": "sigmoid"}),
    ("llama", {"activation": "swiglu", "rotary_pct": 1.0, "rotary_emb_base": 10_000}),
    ("phi3", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}),
    ("gpt2", {"hidden_size": 64, "num_hidden_layers": 2, "n_ctx": 128, "prefix": "</s>"}),
    ("mixtral", {"norm_topk_prob": True, "moe_intermediate_size": 96, "num_experts": 4}),
    ("gpt_neox", {"head_dim": 32, "rotary_dim": 8}),
    ("granite", {"normalization_function": "rmsnorm", "init_method": "mup"}),
    ("starcoder2", {"norm_type": "layer_norm", "mlp_type": "default", "scale_attn_weights": True}),
    ("starcoder2", {"activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-3}),
]


@pytest.mark.parametrize(("family", "fields"), SAME_IN_OTHER_WORDS)
def test_fields_that_say_the_same_are_passed_over(family: str, fields: dict[str, object]) -> None:
    assert read_config(config(family, **fields)) == read_config(config(family))


def test_what_published_configs_carry_is_a_note() -> None:
    """StarCoder2's say "gelu" beside the activation that it has."""
    changed = config("starcoder2", activation_function="gelu")
    notes = ("passed over, not known here: activation_function of config.json",)
    assert read_config(changed) == (read_config(config("starcoder2"))[0], notes)
    with pytest.raises(UnsupportedError, match="activation_function"):
        read_config(config("llama", activation_function="gelu"))


def test_a_field_that_nobody_knows_is_a_note(tmp_path: Path) -> None:
    make_model("llama", torch.float32, 0).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    more = {"dual_chunk": {"size": 3}, "of_tomorrow": 1, "_private": 2, "empty": None}
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
    notes = Checkpoint.open(tmp_path).notes
    assert notes == ("passed over, not known here: dual_chunk, of_tomorrow of config.json",)


@pytest.mark.parametrize(
    ("parameters", "notes"),
    [
        ({"rope_type": "default", "mrope_section": [2, 3, 3]}, ()),
        ({"rope_type": "default", "beta_fast": 32.0}, ("rope_parameters.beta_fast",)),
        (
            {"rope_type": "linear", "factor": 2.0, "of_tomorrow": 1},
            ("rope_parameters.of_tomorrow",),
        ),
    ],
)
def test_parameters_of_other_scalings(
    parameters: dict[str, object], notes: tuple[str, ...]
) -> None:
    found = read_config(config("llama", rope_parameters=parameters))[1]
    assert found == tuple(f"passed over, not known here: {one} of config.json" for one in notes)


def test_queries_that_grow_are_refused_where_they_do_not() -> None:
    parameters = {"rope_type": "default", "llama_4_scaling_beta": 0.1}
    with pytest.raises(UnsupportedError, match="llama_4_scaling_beta"):
        read_config(config("mistral", rope_parameters=parameters))


def configs(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for file in sorted(folder.glob("hf/*.json")):
        yield file.name, json.loads(file.read_text())


@needs_data("configs")
def test_published_configs_have_no_field_that_is_refused_or_not_known() -> None:
    folder = data_folder("configs")
    assert folder is not None
    known = [(name, one) for name, one in configs(folder) if one["model_type"] in FAMILIES]
    assert len(known) > 10
    assert [(name, read_config(one)[1]) for name, one in known] == [(name, ()) for name, _ in known]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats() | st.text(max_size=6),
    lambda own: (
        st.lists(own, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rope_type", "type", "factor", "full_attention", "x"]), own, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(RUN), st.data())
def test_whatever_a_field_holds_is_read_or_refused(family: str, data: st.DataObject) -> None:
    names = st.sampled_from(fields_of_transformers())
    changes = data.draw(st.dictionaries(names, JSON, max_size=3))
    with contextlib.suppress(ParedownError):
        read_config(config(family, **changes))


def test_objects_in_objects_without_end() -> None:
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"x": deep}
    parameters = {"rope_type": "default", "rope_theta": 1e4}
    fields = config("llama", rope_parameters=parameters, rope_scaling={}, of_tomorrow=deep)
    assert read_config(fields)[1] == ("passed over, not known here: of_tomorrow of config.json",)
    assert refusal_of(config("llama", rope_parameters=deep)) is not None


def test_no_pattern_hides_a_field_that_changes() -> None:
    assert [name for name in (*NEUTRAL, *CHANGING) if is_harmless(name)] == []
    assert len(set(HARMLESS)) == len(HARMLESS)
