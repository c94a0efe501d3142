"""Bytes and arithmetic of whole models."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import gated, plain
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.cost.alike import mlp_columns
from paredown.cost.inspection import inspect_model
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES
from paredown.cost.memory import (
    activation_bytes,
    embedding_bytes,
    generation_flops,
    kv_cache_bytes,
    max_sequences,
    missing_bytes,
    model_memory,
    working_bytes,
)
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.serving import BatchLoad
from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.evaluate.quality.measurement import linear_format
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.native_model import planned_step_bytes
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.run_forms import model_formats
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kv import KV_DTYPES, KVDTypes, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import SHORT_BF16_ISAS, WeightSpec


def test_the_classic_cache() -> None:
    """32 layers, d 4096, 64 sequences of 2048 tokens in fp16: 68.7 GB."""
    spec = gated(hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=32, head_dim=128)
    num_bytes = kv_cache_bytes(spec, ModelFormats(), batch=64, context=2048)
    assert num_bytes == 2 * 32 * 64 * 2048 * 4096 * 2
    assert round(num_bytes / 1e9, 1) == 68.7


@pytest.mark.parametrize(("kv_heads", "share"), [(32, 1), (8, 4), (1, 32)])
def test_grouped_and_single_heads_share_keys(kv_heads: int, share: int) -> None:
    whole = gated(num_heads=32, num_kv_heads=32, head_dim=16)
    grouped = gated(num_heads=32, num_kv_heads=kv_heads, head_dim=16)
    sizes = {"batch": 2, "context": 40}
    assert kv_cache_bytes(grouped, ModelFormats(), **sizes) * share == kv_cache_bytes(
        whole, ModelFormats(), **sizes
    )


@pytest.mark.parametrize("dtype", [*KV_DTYPES, ("int4", "bf16", "int4")])
def test_keys_and_values_take_what_pages_take(dtype: KVDTypes) -> None:
    spec = gated(head_dim=32)
    formats = ModelFormats(kv_dtype=dtype)
    pages = KVSpec(num_pages=3, dtype=dtype)
    page_bytes = pages.page_bytes(spec)
    assert kv_cache_bytes(spec, formats, batch=1, context=48) == 3 * page_bytes


def test_a_window_bounds_the_cache() -> None:
    spec, formats = gated(sliding_window=16), ModelFormats()
    long = kv_cache_bytes(spec, formats, batch=1, context=1000)
    assert long == kv_cache_bytes(gated(), formats, batch=1, context=16)


def test_sinks_and_their_window_are_one_window() -> None:
    """In what is kept, attended to and computed: as a window of all of these tokens."""
    streaming = Context(
        spec=gated(), sinks=AttentionSinks(num_sink_tokens=4, window=12)
    ).costed_spec
    windowed, formats = gated(sliding_window=16), ModelFormats()
    batch_load = BatchLoad(batch=3, prompt_tokens=40, context=60)
    profile = MachineProfile(key="h100", roofs=MACHINES["h100"])
    found = [inspect_model(spec, formats, batch_load, profile) for spec in (streaming, windowed)]
    for one in found:
        flops = {cost.operation.name: cost.flops for cost in one.operations["decode"]}
        assert flops["scores, window"] == 3 * 3 * 2 * 4 * 8 * 16  # batch, layers, query columns
    sinks, window = (one.as_json() | {"model": None} for one in found)
    assert sinks == window
    assert sinks["memory_bytes"]["kv"] == kv_cache_bytes(gated(), formats, batch=3, context=16)


@pytest.mark.parametrize("name", ["default", "draft"])
def test_weights_are_those_of_the_files_and_of_the_core(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packaged checkpoints: what is predicted, in the files, and what a step reads."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")
    checkpoint = Checkpoint.open(resolve_model(name))
    linear = linear_format(checkpoint)
    formats = ModelFormats(linear=linear, output=linear)
    memory = model_memory(checkpoint.spec, formats, batch=1, context=16, step_tokens=1)
    stored = sum(tensor.array.nbytes for tensor in checkpoint.tensors.values())
    assert memory.weights + memory.vectors + memory.embedding == stored
    executor = load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))
    assert executor.weight_bytes == pytest.approx(memory.weights, rel=1e-3)


@pytest.mark.parametrize("isa", sorted(SHORT_BF16_ISAS & set(supported_isas())))
def test_short_exponents_are_counted(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trained model shows that short exponents are counted."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    checkpoint = Checkpoint.open(resolve_model("default"))
    formats = replace(model_formats(checkpoint), short_bf16=True)
    memory = model_memory(checkpoint.spec, formats, batch=1, context=16, step_tokens=1)
    executor = load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))
    assert executor.weight_bytes == pytest.approx(memory.weights, rel=0.01)


@pytest.mark.parametrize("recipe", ["magnitude-50-int8", "magnitude-2of4", "magnitude-70-int8"])
def test_zeros_are_counted_as_the_core_holds_them(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")  # the rest may be bf16
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "vocab_size": 320}
    model = make_model("llama", torch.bfloat16, 0, **sizes, initializer_range=0.15)
    model.save_pretrained(tmp_path / "model")
    compress(Checkpoint.open(tmp_path / "model"), tmp_path / "out", recipe)
    checkpoint = Checkpoint.open(tmp_path / "out")
    formats = model_formats(checkpoint)
    memory = model_memory(checkpoint.spec, formats, batch=1, context=16, step_tokens=1)
    dense = replace(formats, zeros=())
    whole = model_memory(checkpoint.spec, dense, batch=1, context=16, step_tokens=1)
    assert memory.weights < 0.8 * whole.weights
    executor = load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))
    assert executor.weight_bytes == pytest.approx(memory.weights, rel=0.02)
    assert f"{executor.weight_bytes / whole.weights:.1f}" == f"{memory.weights / whole.weights:.1f}"


@pytest.mark.parametrize(
    "name", ["w4a8-g32-qoq", "w4a8-g64-asym-qoq", "w4a8-g32", "w4a8-g32-head-w4a8-g32-qoq"]
)
def test_integer_steps_are_seen_and_take_what_the_core_reads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte for a group's step (and for its zero point), one scale for a row."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")  # the head may be bf16
    # Rows in whole blocks of 16: the core fills the last one.
    sizes = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 320}
    make_model("llama", torch.bfloat16, 0, **sizes, tie_word_embeddings=True).save_pretrained(
        tmp_path / "model"
    )
    compress(Checkpoint.open(tmp_path / "model"), tmp_path / "out", name)
    checkpoint = Checkpoint.open(tmp_path / "out")
    formats = model_formats(checkpoint)
    linear, _, head = name.partition("-head-")
    assert formats.linear.name == linear
    assert formats.output.name == (head or "bf16")
    memory = model_memory(checkpoint.spec, formats, batch=1, context=16, step_tokens=1)
    executor = load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))
    assert executor.weight_bytes == memory.weights


def test_what_a_step_writes_is_part_of_what_the_core_sets_aside() -> None:
    spec = Checkpoint.open(resolve_model(None)).spec
    planned = planned_step_bytes(Context(spec=spec), KVSpec(num_pages=64), 1, 512)
    found = working_bytes(spec, ModelFormats(), 512)
    assert activation_bytes(spec, ModelFormats(), 512) < found < planned
    assert found == 512 * (4 * (384 + 3 * 2 * 896) + 2 * 896)


def test_a_processor_holds_what_our_core_writes_to() -> None:
    """The plan shows the peak that `benchmarks.prediction` checks; a GPU has no such rows."""
    spec = Checkpoint.open(resolve_model(None)).spec
    for floats, working in ((4, working_bytes), (2, activation_bytes)):
        formats = ModelFormats(activation_bytes=floats)
        memory = model_memory(spec, formats, batch=1, context=1024, step_tokens=512)
        assert memory.activations == working(spec, formats, 512)


def test_activations_are_about_what_the_core_sets_aside() -> None:
    """Ours has four rows as wide as the widest, whatever is alive: between one and four times."""
    spec = Checkpoint.open(resolve_model(None)).spec
    planned = planned_step_bytes(Context(spec=spec), KVSpec(num_pages=64), 1, 512)
    assert 1 <= planned / activation_bytes(spec, ModelFormats(), 512) <= 4


def brute_force_flops(spec: ModelSpec, prompt: int, new: int, with_cache: bool) -> float:
    counted, total = operations(spec, ModelFormats()), 0.0
    for index in range(new):
        end = prompt + index
        start = 0 if index == 0 or not with_cache else end - 1
        load = StepLoad(
            num_tokens=end - start,
            num_logits=1,
            num_requests=1,
            attention_pairs=chunk_pairs(start, end - start),
            kv_tokens_read=end,
            windowed_pairs=tuple(chunk_pairs(start, end - start, one) for one in spec.windows),
            windowed_kv_tokens_read=(0,) * len(spec.windows),
        )
        letters = load_letters(load, spec)
        total += sum(one.count * one.flops.value(letters) for one in counted)
    return total


@given(st.integers(1, 20), st.integers(1, 20), st.booleans(), st.sampled_from([None, 7]))
@settings(max_examples=25, deadline=None)
def test_an_answer_costs_the_sum_of_its_steps(
    prompt: int, new: int, with_cache: bool, window: int | None
) -> None:
    spec = gated(sliding_window=window)
    found = generation_flops(spec, prompt_tokens=prompt, new_tokens=new, with_cache=with_cache)
    assert found == brute_force_flops(spec, prompt, new, with_cache)


def test_without_a_cache_an_answer_costs_more() -> None:
    spec = plain()
    sizes = {"prompt_tokens": 10, "new_tokens": 30}
    cheap = generation_flops(spec, **sizes, with_cache=True)
    assert generation_flops(spec, **sizes, with_cache=False) > 10 * cheap


def test_how_many_sequences_fit() -> None:
    spec, formats = gated(), ModelFormats()
    memory = model_memory(spec, formats, batch=1, context=32, step_tokens=8)
    each = kv_cache_bytes(spec, formats, batch=1, context=32)
    rest = memory.total - memory.kv
    assert max_sequences(rest + 5 * each, memory, each) == 5
    assert max_sequences(rest - 1, memory, each) == 0


@given(specs(), st.integers(1, 4), st.integers(1, 50), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_memory_of_layers_that_differ_is_counted_layer_by_layer(
    spec: ModelSpec, batch: int, context: int, step_tokens: int
) -> None:
    found = model_memory(
        spec, ModelFormats(), batch=batch, context=context, step_tokens=step_tokens
    )
    kv = 0
    for layer in spec.layers:
        kept = min(context, layer.attention.window or context)
        kv += 2 * kept * layer.attention.kv_size * 2
    assert found.kv == batch * kv
    assert (found.inputs, found.outputs) == (4 * step_tokens, 4 * batch * spec.vocab_size)
    table = 2 * spec.vocab_size * spec.hidden_size
    assert found.embedding == (0 if spec.is_tied else table)
    routers = spec.num_router_parameters()
    assert found.weights == 2 * spec.num_linear_parameters() + 4 * routers + table
    numbers = spec.num_parameters() + (routers if routers else 0)
    held = found.weights + found.vectors + found.embedding
    assert held == 2 * numbers, "two bytes for all, four for routers"
    parts = (found.weights, found.vectors, found.embedding, found.kv, found.activations)
    assert found.total == sum(parts) + found.inputs + found.outputs


@given(specs(), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_step_works_in_no_less_than_what_is_alive_at_once(
    spec: ModelSpec, num_tokens: int
) -> None:
    """And in proportion to its tokens."""
    for formats in (ModelFormats(), ModelFormats(activation_bytes=2)):
        alive = activation_bytes(spec, formats, num_tokens)
        assert alive == num_tokens * activation_bytes(spec, formats, 1)
        most = 0
        for layer in spec.layers:
            heads = 2 * layer.attention.query_size + 2 * layer.attention.kv_size
            inner = mlp_columns(layer) * (len(layer.mlp.up_roles) + 1)
            most = max(most, heads, inner)
        assert alive == num_tokens * (spec.hidden_size + most) * formats.activation_bytes
    assert activation_bytes(spec, ModelFormats(), num_tokens) <= working_bytes(
        spec, ModelFormats(), num_tokens
    )


@given(st.integers(0, 10**9), st.integers(1, 50))
def test_a_sequence_fits_or_it_is_told_what_is_missing(available: int, context: int) -> None:
    spec, formats = gated(), ModelFormats()
    memory = model_memory(spec, formats, batch=3, context=context, step_tokens=8)
    each = kv_cache_bytes(spec, formats, batch=1, context=context)
    fitting, missing = (
        max_sequences(available, memory, each),
        missing_bytes(available, memory, each),
    )
    assert (fitting == 0) == (missing > 0)
    rest = memory.total - memory.kv
    if fitting:
        assert rest + fitting * each <= available < rest + (fitting + 1) * each
    else:
        assert max_sequences(available + missing, memory, each) == 1
        assert max_sequences(available + missing - 1, memory, each) == 0


@pytest.mark.parametrize(("is_tied", "is_quantized"), [(False, False), (True, True)])
def test_a_table_of_its_own_is_held_beside_the_output(is_tied: bool, is_quantized: bool) -> None:
    spec = gated(tied_embeddings=is_tied)
    output = WeightSpec(dtype="fp8" if is_quantized else "bf16")
    assert embedding_bytes(spec, ModelFormats(output=output)) == 50 * 16 * 2
    wide = ModelFormats(output=output, embedding_bits=32)
    assert embedding_bytes(spec, wide) == 50 * 16 * 4
    read_by_row = ModelFormats(output=WeightSpec(dtype="q6_k"), embedding_bits=6.5625)
    assert embedding_bytes(spec, read_by_row) == (0 if is_tied else 656)
    assert embedding_bytes(gated(tied_embeddings=True), ModelFormats()) == 0
