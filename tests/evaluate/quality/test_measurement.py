"""Measurement: the part of every verb's JSON that is about a model."""

import json
import math
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import torch

from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.evaluate.quality.measurement import (
    Measurement,
    linear_format,
    linear_format_name,
    make_measurement,
)
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.vector_agreement import VectorAgreement
from paredown.evaluate.speed.speed import Speed
from paredown.models.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source")
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder)
    return Checkpoint.open(folder)


def test_what_is_not_finite_is_null_so_that_the_json_is_valid() -> None:
    measured = Measurement(
        name="broken",
        linear_dtype="int4",
        bits_per_weight=4.5,
        file_bytes=10,
        perplexity=math.inf,
        bits_per_byte=math.nan,
        kl_divergence=-math.inf,
        mbu=0.5,
        on_front=False,
    )
    fields = json.loads(json.dumps(measured.as_json(), allow_nan=False))
    assert [fields[one] for one in ("perplexity", "bits_per_byte", "kl_divergence")] == [None] * 3
    assert fields["mbu"] == 0.5
    assert fields["on_front"] is False
    assert fields["file_bytes"] == 10


def test_it_has_a_field_for_all_that_is_measured(source: Checkpoint) -> None:
    """Each figure where its name says, and nothing made up for what was not measured."""
    quality = Quality(perplexity=7.0, bits_per_byte=1.5, kl_divergence=0.25, top1_agreement=0.75)
    speed = Speed(
        decode_tokens_per_s=11.0,
        decode_spread=0.01,
        prefill_tokens_per_s=500.0,
        prefill_spread=0.02,
        mbu=0.5,
        mfu=0.25,
        decode_bytes=7,
    )
    agreement = VectorAgreement(
        cosine_mean=0.99, cosine_least=0.98, rank_agreement=0.97, label_agreement=0.96
    )
    whole = make_measurement(
        "one", source, quality=quality, agreement=agreement, speed=speed, held_bytes=6
    )
    told = asdict(quality) | asdict(agreement) | asdict(speed) | {"held_bytes": 6}
    assert {name: getattr(whole, name) for name in told} == told
    bare = make_measurement("one", source)
    by_search = {"on_front", "first_token_s", "memory_bytes", "texts_per_s", "texts_spread"}
    assert {name for name, value in bare.as_json().items() if value is None} == {*told, *by_search}
    assert {one.name for one in fields(Measurement)} == set(whole.as_json())


@pytest.mark.parametrize("recipe", ["int8", "int4-g32", "int4-g32-head-int8"])
def test_bits_are_those_of_the_files_over_the_weights_of_the_original(
    recipe: str, source: Checkpoint, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", recipe)
    written = Checkpoint.open(tmp_path / "out")
    found = make_measurement(recipe, written, original=source)
    num_bytes = sum(one.stat().st_size for one in (tmp_path / "out").glob("*.safetensors"))
    assert found.file_bytes == num_bytes
    assert found.bits_per_weight == 8 * num_bytes / source.spec.num_parameters()
    assert found.bits_per_weight < make_measurement("bf16", source).bits_per_weight
    assert found.linear_dtype == recipe[:4].rstrip("-")
    assert linear_format_name(written) == linear_format(written).name == recipe.split("-head")[0]


def test_most_layers_give_the_format(source: Checkpoint, tmp_path: Path) -> None:
    """The head, which is one layer, gives none."""
    assert linear_format(source).dtype == "bf16"
    compress(source, tmp_path / "out", "bf16-head-int8")
    assert linear_format_name(Checkpoint.open(tmp_path / "out")) == "bf16"
