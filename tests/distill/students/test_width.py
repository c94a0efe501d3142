"""A narrower student has the largest channels, neurons and heads of its teacher, the same channels
everywhere, and runs in Transformers as here."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.small_tokenizers import byte_level
from fakes.tiny_models import VARIANTS, VOCAB_SIZE, make_model
from paredown.compress.compress import compress
from paredown.distill.students.make_student import make_student
from paredown.distill.students.student_choice import StudentChoice
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

TOKENS_BT = torch.randint(0, VOCAB_SIZE, (2, 12), generator=torch.Generator().manual_seed(2))
# Each has something of its own: fused or transposed modules, biases, experts, other norms.
FAMILIES = ["llama", "gpt2", "opt", "gpt_neox", "phi", "phi3", "gemma2", "gemma3_text", "olmo2"]
FAMILIES += ["mixtral", "qwen2_moe", "qwen3_moe", "starcoder2", "granite", "smollm3"]
# Sizes that half of leaves something to choose from, and what Transformers must be told.
CHANGES: dict[str, dict[str, object]] = {
    "qwen2_moe": {"moe_intermediate_size": 64},
    "qwen3_moe": {"moe_intermediate_size": 64},
}


def student_of(teacher: Path, choice: str, output: Path) -> Checkpoint:
    make_student(Checkpoint.open(teacher), StudentChoice.parse(choice), output)
    return Checkpoint.open(output)


def save(folder: Path, model: torch.nn.Module) -> Path:
    model.save_pretrained(folder)  # type: ignore[operator]
    byte_level().save(str(folder / "tokenizer.json"))
    return folder


def check_logits(folder: Path) -> None:
    """The folder's logits here are those of Transformers."""
    theirs = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = theirs(TOKENS_BT).logits
        found = Decoder.from_checkpoint(Checkpoint.open(folder))(TOKENS_BT)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_students_of_all_families_run_in_transformers(family: str, tmp_path: Path) -> None:
    teacher = save(
        tmp_path / "teacher", make_model(family, torch.float32, 4, **CHANGES.get(family, {}))
    )
    before = Checkpoint.open(teacher).spec
    student = student_of(teacher, "width-50", tmp_path / "out").spec
    assert student.hidden_size == before.hidden_size // 2
    for own, theirs in zip(student.layers, before.layers, strict=True):
        assert own.attention.num_kv_heads == theirs.attention.num_kv_heads // 2
        assert own.attention.num_heads == theirs.attention.num_heads // 2
        assert own.attention.head_dim == theirs.attention.head_dim
    assert student.num_parameters() < before.num_parameters()
    check_logits(tmp_path / "out")


def wide_llama() -> torch.nn.Module:
    return make_model("llama", torch.float32, 4, num_hidden_layers=3, tie_word_embeddings=True)


def test_layers_and_width_go_together(tmp_path: Path) -> None:
    teacher = save(tmp_path / "teacher", wide_llama())
    student = student_of(teacher, "every-2+width-50", tmp_path / "out")
    assert student.kept_layers == (0, 2)
    assert student.spec.hidden_size == 32
    again = student_of(teacher, "width-50+every-2", tmp_path / "again")
    assert again.spec == student.spec
    check_logits(tmp_path / "out")


def test_the_largest_stay_and_are_the_teachers(tmp_path: Path) -> None:
    model = wide_llama()
    channels, neurons = np.arange(1, 64, 2), np.arange(32, 96)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, channels] *= 5  # type: ignore[union-attr,index,operator]
        for number, layer in enumerate(model.model.layers):  # type: ignore[union-attr,arg-type]
            layer.mlp.gate_proj.weight[neurons] *= 6
            head = number % 2
            layer.self_attn.v_proj.weight[16 * head : 16 * head + 16] *= 3
            for linear in (layer.mlp.down_proj, layer.self_attn.o_proj):
                linear.weight[channels] *= 5
    teacher = Checkpoint.open(save(tmp_path / "teacher", model))
    student = student_of(teacher.path, "width-50", tmp_path / "out")
    own, theirs = (Decoder.from_checkpoint(one).state_dict() for one in (student, teacher))
    assert torch.equal(own["embedding.weight"], theirs["embedding.weight"][:, channels])
    assert torch.equal(own["final_norm.weight"], theirs["final_norm.weight"][channels])
    for number in range(3):
        heads = np.arange(16 * (number % 2), 16 * (number % 2) + 16)
        queries = np.arange(32 * (number % 2), 32 * (number % 2) + 32)
        for role, rows, columns in (
            ("q", queries, channels),
            ("k", heads, channels),
            ("v", heads, channels),
            ("o", channels, queries),
            ("gate", neurons, channels),
            ("up", neurons, channels),
            ("down", channels, neurons),
        ):
            name = f"layers.{number}.{role}.weight"
            assert torch.equal(own[name], theirs[name][np.ix_(rows, columns)]), name
        for role in ("attention_norm", "mlp_norm"):
            name = f"layers.{number}.{role}.weight"
            assert torch.equal(own[name], theirs[name][channels])


def test_a_single_key_value_head_stays(tmp_path: Path) -> None:
    VARIANTS["llama-mqa"](tmp_path / "teacher", torch.float32, 4)
    byte_level().save(str(tmp_path / "teacher" / "tokenizer.json"))
    student = student_of(tmp_path / "teacher", "width-50", tmp_path / "out")
    assert student.spec.layers[0].attention.num_kv_heads == 1
    assert student.spec.hidden_size == 32


@pytest.mark.parametrize(
    ("choice", "kind", "says"),
    [
        ("width-20", ConfigError, r"no attention head.*width-20 of 2.*at least width-25"),
        ("width-99", ConfigError, "no sensible number of neurons"),
        ("width-30", ConfigError, "no sensible number of hidden channels"),
    ],
)
def test_a_width_that_makes_no_sense_is_refused(
    choice: str, kind: type[Exception], says: str, tmp_path: Path
) -> None:
    teacher = save(tmp_path / "teacher", wide_llama())
    if choice == "width-30":
        teacher = save(tmp_path / "small", make_model("llama", torch.float32, 4, hidden_size=32))
    with pytest.raises(kind, match=says):
        student_of(teacher, choice, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_the_family_cannot_say_is_refused(tmp_path: Path) -> None:
    """GPT-2 has no field for the size of a head: one of three heads is 32 channels of 96."""
    model = make_model("gpt2", torch.float32, 4, n_embd=192, n_head=3)
    teacher = save(tmp_path / "teacher", model)
    assert student_of(teacher, "width-33", tmp_path / "out").spec.hidden_size == 64
    one = save(tmp_path / "one", make_model("gpt2", torch.float32, 4, n_head=1))
    with pytest.raises(UnsupportedError, match="cannot say"):
        student_of(one, "width-50", tmp_path / "none")


def test_a_config_that_transformers_would_not_read_is_not_written(tmp_path: Path) -> None:
    teacher = save(tmp_path / "teacher", make_model("granitemoehybrid", torch.float32, 4))
    with pytest.raises(UnsupportedError, match="mamba_expand"):
        student_of(teacher, "width-50", tmp_path / "out")


def test_codes_are_refused_before_any_work(tmp_path: Path) -> None:
    teacher = save(tmp_path / "teacher", wide_llama())
    compress(Checkpoint.open(teacher), tmp_path / "int8", "int8")
    with pytest.raises(UnsupportedError, match="quantized"):
        student_of(tmp_path / "int8", "width-50", tmp_path / "out")
