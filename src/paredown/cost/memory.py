"""What a model takes in memory, and its arithmetic with and without kept keys and values."""

from dataclasses import dataclass
from math import ceil

from paredown.cost.model_formats import ModelFormats, kv_element_bytes, unit_of
from paredown.cost.operation import EXPERTS, load_letters
from paredown.cost.operations import attention_layers, num_expert_layers, operations
from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.spec.model import ModelSpec

_ID_BYTES = 4
_LOGIT_BYTES = 4
# Of a machine's memory, for weights, keys and values and what a step works in; the system has the
# rest.
MEMORY_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """Bytes of `batch` sequences of `context` tokens, of which a step computes `step_tokens`.

    `weights`     linear layers and output layer, with their scales
    `vectors`     norms, biases, learned positions, in two bytes
    `embedding`   the table, where it is not the output layer itself
    `kv`          keys and values of all sequences
    `activations` what a step works in: `working_bytes` of our core, and where numbers between
                  operations take two bytes (a GPU) those that are alive at once
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
        1 if spec.tied_embeddings else 2
    )
    routers = [spec.router_shapes(layer) for layer in range(spec.num_layers)]
    matrices += sum(out * columns for shapes in routers for out, columns in shapes.values())
    linear = sum(
        float(one.count * one.weight_bytes.value({EXPERTS: num_experts(spec)}))
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
    """0 where it is tied to an output layer of floats: its rows are read from there."""
    if spec.tied_embeddings and not formats.output.is_quantized:
        return 0
    return spec.vocab_size * spec.hidden_size * formats.embedding_bits // 8


def kv_cache_bytes(spec: ModelSpec, formats: ModelFormats, *, batch: int, context: int) -> int:
    """Keys and values: 2 x layers x sequences x tokens x key-value heads x columns of a head. A
    layer with a sliding window needs the tokens of the window alone."""
    kept = min(context, spec.attended_window or context)
    values = sum(
        one.count
        * (kept if one.is_windowed else context)
        * kv_element_bytes(one.kv_dtype, spec.head_dim)
        for one in attention_layers(spec, formats)
    )
    return int(2 * batch * spec.num_kv_heads * spec.head_dim * values)


def activation_bytes(spec: ModelSpec, formats: ModelFormats, num_tokens: int) -> int:
    """The most that is alive at once in a layer: the hidden state, and either queries, keys, values
    and attended heads, or gate, up and their product."""
    heads = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    mlp = mlp_columns(spec) * (3 if spec.gated else 2)
    return num_tokens * (spec.hidden_size + max(heads, mlp)) * formats.activation_bytes


def num_experts(spec: ModelSpec) -> int:
    return 0 if spec.experts is None else spec.experts.num


def mlp_columns(spec: ModelSpec) -> int:
    """Columns between the two halves of the widest layer's MLP, for one token."""
    experts = spec.experts
    if experts is None:
        return spec.intermediate_size
    of_experts = experts.num_per_token * experts.intermediate_size
    moe = of_experts + (experts.shared_intermediate_size or 0)
    is_all = num_expert_layers(spec) == spec.num_layers
    return moe if is_all else max(moe, spec.intermediate_size)


def working_bytes(spec: ModelSpec, formats: ModelFormats, num_tokens: int) -> int:
    """What a step of our core writes to (csrc/model/model.cpp): the hidden state, three rows as
    wide as
    the widest (q, k, v beside each other or gate and up; attended heads; what goes into `down`),
    and an input in the form its kernel reads. Logits and what threads have of their own are not in
    it, nor room that is set aside for other formats and never touched."""
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    inner = mlp_columns(spec)
    up = inner * (2 if spec.gated else 1)
    widest = max(spec.hidden_size, query + 2 * kv, up)
    read = max(spec.hidden_size, query, inner)
    unit = unit_of(formats.linear, formats.activation_bytes)
    input_bytes = {"int8": 1, "bf16": 2, "fp32": 4}[unit]
    return num_tokens * (4 * (spec.hidden_size + 3 * widest) + read * input_bytes)


def generation_flops(
    spec: ModelSpec, *, prompt_tokens: int, new_tokens: int, with_cache: bool
) -> float:
    """Multiplications and additions of one answer. Without kept keys and values every new token
    computes all tokens before it anew."""
    last = prompt_tokens + new_tokens - 1
    lengths = [last] if with_cache else range(prompt_tokens, last + 1)
    window = spec.attended_window
    load = StepLoad(
        num_tokens=sum(lengths),
        num_logits=new_tokens,
        num_requests=1,
        attention_pairs=sum(chunk_pairs(0, length) for length in lengths),
        kv_tokens_read=0,
        windowed_pairs=sum(chunk_pairs(0, length, window) for length in lengths),
    )
    letters = load_letters(load, spec)
    return sum(one.count * one.flops.value(letters) for one in operations(spec, ModelFormats()))


def missing_bytes(available_bytes: float, memory: ModelMemory, sequence_kv_bytes: int) -> int:
    """What more memory one sequence would need beside all else; 0 where it fits."""
    needed = memory.total - memory.kv + sequence_kv_bytes
    return max(0, ceil(needed - available_bytes))


def max_sequences(available_bytes: float, memory: ModelMemory, sequence_kv_bytes: int) -> int:
    """How many sequences' keys and values fit beside all else; 0 where the model does not."""
    rest = available_bytes - (memory.total - memory.kv)
    return max(0, int(rest // sequence_kv_bytes))
