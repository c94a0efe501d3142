"""Round-to-nearest compression of a whole checkpoint: a standard folder in, a standard folder out.

Quantized formats are for the linear layers of the transformer layers and, where the recipe says
so, for the output layer; embeddings, norms and biases stay as they are. Float formats cast every
tensor. One tensor at a time is in memory, and a bounded number of finished bytes.

An output layer that was tied to the embedding becomes a tensor of its own when it is quantized: the
embedding, of which a step reads single rows, stays in float beside it.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.recipe import HEAD, Recipe, find_recipe
from paredown.compress.shards import write_shards
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.compressed_tensors import encode
from paredown.formats.floating import cast
from paredown.formats.quantization_config import quantization_config
from paredown.formats.quantize import quantize
from paredown.formats.tensor import StoredDType, StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.output_folder import output_folder
from paredown.models.roles import linear_roles
from paredown.spec.weight import ScaleDType, WeightSpec

# Files that are copied when the source has them; a model card speaks of the source alone.
COPIED_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
)
CONFIG_DTYPES: dict[ScaleDType, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
FLOATS: dict[StoredDType, ScaleDType] = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}

# Called with the number of tensors done and their total.
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """What was written, and what was not done as asked.

    `bits_per_weight`  bits of all stored tensors over the parameters of the source
    `file_bytes`       size of the safetensors files
    `num_quantized`    linear layers stored as codes, the output layer among them
    `kept`             tensors left as they were in a quantized format (norms, embeddings, ...)
    `untied`           the output layer was tied to the embedding and became a tensor of its own
    `clamped`          values beyond the range of the format that became its largest, by tensor
    """

    name: str
    path: Path
    bits_per_weight: float
    file_bytes: int
    num_quantized: int
    kept: tuple[str, ...]
    untied: bool
    clamped: dict[str, int]


def compress(
    source: Checkpoint,
    output: Path,
    recipe_name: str,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> CompressResult:
    """Writes `source` by the recipe of that name to the folder `output`, which appears whole or not
    at all; what was written is opened and checked before it appears.

    Raises ConfigError for an unknown recipe, UnsupportedError for one that this model cannot have
    (the groups do not divide its columns, ...), OutputError when `output` cannot be written.
    """
    recipe = find_recipe(recipe_name)
    _check_mixture(recipe)
    _check_source(source, recipe.linear)
    job = _Job(source, recipe, on_progress or (lambda done, total: None))
    with output_folder(output, overwrite) as folder:
        _copy_files(source.path, folder)
        write_shards(folder, job.tensors())
        config = json.dumps(job.config(), indent=2) + "\n"
        (folder / "config.json").write_text(config, "utf-8")
        written = Checkpoint.open(folder)
        bits_per_weight = checkpoint_bits_per_weight(written, source.spec)
    return CompressResult(
        name=recipe.name,
        path=output,
        bits_per_weight=bits_per_weight,
        file_bytes=written.file_bytes,
        num_quantized=len(job.quantized),
        kept=tuple(job.kept),
        untied=job.unties,
        clamped=job.clamped,
    )


class _Job:
    """Makes the tensors one by one and remembers what it did."""

    def __init__(self, source: Checkpoint, recipe: Recipe, on_progress: OnProgress) -> None:
        self._source = source
        self._recipe = recipe
        self._on_progress = on_progress
        self._modules = _quantized_modules(source, recipe)
        self.unties = recipe.head is not None and source.spec.tied_embeddings
        self.quantized: list[str] = []
        self.kept: list[str] = []
        self.clamped: dict[str, int] = {}

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        names = list(self._source.tensors)
        for done, name in enumerate(names):
            self._on_progress(done, len(names))
            try:
                yield from self._convert(name, self._source.tensors[name])
            except (CheckpointError, UnsupportedError) as error:
                what = f"tensor {name}: {error.what}"
                raise type(error)(what, seen=error.seen, remedy=error.remedy) from error
        self._on_progress(len(names), len(names))

    def config(self) -> dict[str, object]:
        config = dict(self._source.config)
        dtype = CONFIG_DTYPES[self._float_dtype()]
        if "torch_dtype" in config:
            config["torch_dtype"] = dtype
        if "dtype" in config or "torch_dtype" not in config:
            config["dtype"] = dtype
        if self.unties:
            config["tie_word_embeddings"] = False
        linear, head, output = self._recipe.linear, self._recipe.head, self._source.names.output
        if linear.is_quantized or head is not None:
            config["quantization_config"] = quantization_config(
                linear if linear.is_quantized else None,
                ignore=[output] if head is None else [],
                named={} if head is None else {output: head},
            )
        return config

    def _convert(self, name: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
        output = self._source.names.output
        if self.unties and name == f"{self._source.names.embedding}.weight":
            assert self._recipe.head is not None
            yield from self._quantize(output, tensor, self._recipe.head)
        if name in self._modules:
            module = name.removesuffix(".weight")
            yield from self._quantize(module, tensor, self._modules[name])
        elif self._recipe.linear.is_quantized or tensor.dtype not in FLOATS:
            self.kept.append(name)
            yield name, tensor
        else:
            result = cast(tensor.to_float32(), self._float_dtype())
            if result.num_clamped:
                self.clamped[name] = result.num_clamped
            yield name, result.tensor

    def _quantize(
        self, module: str, tensor: StoredTensor, spec: WeightSpec
    ) -> Iterator[tuple[str, StoredTensor]]:
        """Scales have the dtype that config.json names, so that a library that takes that for them
        dequantizes to the same bits."""
        self.quantized.append(module)
        weight = quantize(tensor.to_float32(), spec, self._float_dtype())
        for suffix, part in encode(weight).items():
            yield f"{module}.{suffix}", part

    def _float_dtype(self) -> ScaleDType:
        """Of the floats in the folder: the format's, or that of the source's linear layers."""
        if self._recipe.linear.dtype in ("fp32", "bf16", "fp16"):
            return self._recipe.linear.dtype
        return FLOATS[self._source.tensors[next(iter(self._modules))].dtype]


def _quantized_modules(source: Checkpoint, recipe: Recipe) -> dict[str, WeightSpec]:
    """The format of each tensor that becomes codes, by name."""
    modules: dict[str, WeightSpec] = {}
    if recipe.linear.is_quantized:
        roles = linear_roles(source.spec)
        layers = range(source.spec.num_layers)
        names = {source.linear_name(role, layer) for layer in layers for role in roles}
        modules = {f"{name}.weight": recipe.linear for name in sorted(names)}
    if recipe.head is not None and not source.spec.tied_embeddings:
        modules[f"{source.names.output}.weight"] = recipe.head
    return modules


def _check_mixture(recipe: Recipe) -> None:
    """Transformers 5.23 reads packed zero points only while it dequantizes, and then takes the
    first format of config.json for every module."""
    linear, head = recipe.linear, recipe.head
    if head is None or head == linear or not linear.is_quantized:
        return
    if not (linear.symmetric and head.symmetric):
        raise UnsupportedError(
            "two formats of which one is asymmetric cannot be told apart by Transformers",
            seen=recipe.name,
            remedy=f"Use one for both ({linear.name}{HEAD}{linear.name}) or symmetric ones.",
        )


def _check_source(source: Checkpoint, spec: WeightSpec) -> None:
    if source.config.get("quantization_config") is not None:
        raise UnsupportedError(
            "the checkpoint is compressed already",
            seen=f"quantization_config in {source.path / 'config.json'}",
            remedy="Compress the original, so that errors do not add up.",
        )
    transposed = [
        role for role in linear_roles(source.spec) if source.names.source(role).transposed
    ]
    if spec.is_quantized and transposed:
        raise UnsupportedError(
            f"{spec.name} cannot be stored for {source.spec.family}: its linear layers are "
            "transposed modules, which compressed-tensors does not know",
            seen=f"transposed: {', '.join(transposed)}",
            remedy="Use a float format (bf16, fp16).",
        )


def _copy_files(source: Path, folder: Path) -> None:
    for name in COPIED_FILES:
        if not (source / name).is_file():
            continue
        try:
            shutil.copyfile(source / name, folder / name)
        except PermissionError as error:
            raise CheckpointError(
                f"{source / name} cannot be copied",
                seen=error.strerror,
                remedy="Check that you may read it.",
            ) from error
