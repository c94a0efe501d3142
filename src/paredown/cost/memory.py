"""The memory that a model takes, and its arithmetic with and without a KV cache."""

from dataclasses import dataclass
from math import ceil

from paredown.cost.alike import attention_layers, mlp_columns
from paredown.cost.model_formats import ModelFormats, kv_element_bytes, unit_of
from paredown.cost.operation import ENCODES, expert_letter, load_letters
from paredown.cost.operations import operations
from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.spec.model import ModelSpec
from paredown.spec.run_form import run_form

_ID_BYTES = 4
_LOGIT_BYTES = 4
# The share of a machine's memory for weights, keys and values, and working memory. The system has
# the rest.
MEMORY_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """The bytes for `batch` sequences of `context` tokens, of which a step computes `step_tokens`.

    `weights`     linear layers and output layer, with their scales
    `vectors`     norms, biases and learned positions, in two bytes
    `embedding`   the embedding table, unless the output layer holds it
    `kv`          keys and values of all sequences
    `activations` working memory of a step: the core's `working_bytes`, or, where values between
                  operations take two bytes (a GPU), the values alive at once
    `inputs`, `outputs`   token ids, and a row of logits for each sequence
    """

    weights: int
    vectors: int
    embedding: int
    kv: int
    activations: int
    inputs: int
    outputs: int

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.vectors
            + self.embedding
            + self.kv
            + self.activations
            + self.inputs
            + self.outputs
        )


def model_memory(
    spec: ModelSpec, formats: ModelFormats, *, batch: int, context: int, step_tokens: int
) -> ModelMemory:
    matrices = spec.num_linear_parameters() + spec.vocab_size * spec.hidden_size * (
        2 if spec.has_own_output else 1
    )
    matrices += spec.num_router_parameters()
    all_asked = {expert_letter(number): one.num for number, one in enumerate(spec.expert_kinds)}
    all_asked[ENCODES] = 1
    linear = sum(
        float(one.count * one.weight_bytes.value(all_asked))
        for one in operations(spec, formats)
        if one.kind in ("linear", "experts")
    )
    working = working_bytes if formats.activation_bytes == 4 else activation_bytes
    return ModelMemory(
        weights=round(linear),
        vectors=2 * (spec.num_parameters() - matrices),
        embedding=embedding_bytes(spec, formats),
        kv=kv_cache_bytes(spec, formats, batch=batch, context=context),
        activations=working(spec, formats, step_tokens),
        inputs=_ID_BYTES * step_tokens,
        outputs=_LOGIT_BYTES * batch * spec.vocab_size,
    )


def embedding_bytes(spec: ModelSpec, formats: ModelFormats) -> int:
    """Returns the bytes of the embedding; 0 where it is tied to an output layer with readable
    rows."""
    if spec.is_tied and run_form(formats.output, spec.hidden_size).has_rows:
        return 0
    return int(spec.vocab_size * spec.hidden_size * formats.embedding_bits / 8)


def kv_cache_bytes(spec: ModelSpec, formats: ModelFormats, *, batch: int, context: int) -> int:
    """Returns 2 x layers x sequences x tokens x key-value heads x columns of a head, in bytes. A
    layer with a sliding window counts only the tokens of its window."""
    values = sum(
        one.count
        * one.attention.kv_size
        * min(context, one.attention.window or context)
        * kv_element_bytes(one.kv_dtype, one.attention.head_dim)
        for one in attention_layers(spec, formats)
    )
    return int(2 * batch * values)


def activation_bytes(spec: ModelSpec, formats: ModelFormats, num_tokens: int) -> int:
    """Returns the most bytes alive at once in a layer: the hidden state, and either queries, keys,
    values and attended heads, or gate, up and their product."""
    most = 0
    for layer in spec.layer_counts:
        attention = layer.attention
        mlp = mlp_columns(layer) * (3 if layer.mlp.is_gated else 2)
        most = max(most, 2 * attention.query_size + 2 * attention.kv_size, mlp)
    return num_tokens * (spec.hidden_size + most) * formats.activation_bytes


def working_bytes(spec: ModelSpec, formats: ModelFormats, num_tokens: int) -> int:
    """Returns the bytes that a step of our core writes (csrc/model/model.cpp).

    These are the hidden state, three buffers as wide as the widest values (q, k and v together, or
    gate and up; attended heads; the input of `down`), and an input in the form its kernel reads.
    Logits, buffers of threads, and memory reserved for other formats are not included.
    """
    widest = read = spec.hidden_size
    for layer in spec.layer_counts:
        attention, inner = layer.attention, mlp_columns(layer)
        up = inner * len(layer.mlp.up_roles)
        widest = max(widest, attention.query_size + 2 * attention.kv_size, up)
        read = max(read, attention.query_size, inner)
    unit = unit_of(formats.linear, formats.activation_bytes)
    input_bytes = {"int8": 1, "bf16": 2, "fp32": 4}[unit]
    return num_tokens * (4 * (spec.hidden_size + 3 * widest) + read * input_bytes)


def generation_flops(
    spec: ModelSpec, *, prompt_tokens: int, new_tokens: int, with_cache: bool
) -> float:
    """Returns the multiplications and additions of one answer. Without a KV cache every new token
    recomputes all tokens before it."""
    # A decoder computes the prompt as well; that of an encoder is read once.
    first = prompt_tokens if spec.encoder is None else 1
    last = first + new_tokens - 1
    lengths = [last] if with_cache else range(first, last + 1)
    load = StepLoad(
        num_tokens=sum(lengths),
        num_logits=new_tokens,
        num_requests=1,
        attention_pairs=sum(chunk_pairs(0, length) for length in lengths),
        kv_tokens_read=0,
        windowed_pairs=tuple(
            sum(chunk_pairs(0, length, window) for length in lengths) for window in spec.windows
        ),
        windowed_kv_tokens_read=(0,) * len(spec.windows),
        num_encoder_tokens=prompt_tokens,
        encoder_pairs=prompt_tokens**2,
        cross_pairs=prompt_tokens * sum(lengths),
    )
    letters = load_letters(load, spec)
    return sum(one.count * one.flops.value(letters) for one in operations(spec, ModelFormats()))


def missing_bytes(available_bytes: float, memory: ModelMemory, sequence_kv_bytes: int) -> int:
    """Returns how many bytes are missing for one sequence; 0 where it fits."""
    needed = memory.total - memory.kv + sequence_kv_bytes
    return max(0, ceil(needed - available_bytes))


def max_sequences(available_bytes: float, memory: ModelMemory, sequence_kv_bytes: int) -> int:
    """Returns how many sequences' keys and values fit; 0 where the model itself does not."""
    rest = available_bytes - (memory.total - memory.kv)
    return max(0, int(rest // sequence_kv_bytes))
