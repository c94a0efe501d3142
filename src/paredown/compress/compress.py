"""Round-to-nearest compression of a whole checkpoint: a standard folder in, a standard folder out.

Integer formats quantize the linear layers of the transformer layers and keep embeddings, norms,
biases and the output layer as they are. Float formats cast every tensor. One tensor at a time is
in memory, and a bounded number of finished bytes.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.shards import write_shards
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.compressed_tensors import encode, quantization_config
from paredown.formats.floating import cast
from paredown.formats.integer import quantize
from paredown.formats.table import FORMATS
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
IGNORED_MODULES = ("lm_head",)
CONFIG_DTYPES: dict[ScaleDType, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
FLOATS: dict[StoredDType, ScaleDType] = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}

# Called with the number of tensors done and their total.
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """What was written, and what was not done as asked.

    `bits_per_weight`  bits of all stored tensors over the parameters of the whole model
    `file_bytes`       size of the safetensors files
    `num_quantized`    linear layers on an integer grid
    `kept`             tensors left as they were in an integer format (norms, embeddings, ...)
    `clamped`          values beyond the range of the format that became its largest, by tensor
    """

    name: str
    path: Path
    bits_per_weight: float
    file_bytes: int
    num_quantized: int
    kept: tuple[str, ...]
    clamped: dict[str, int]


def compress(
    source: Checkpoint,
    output: Path,
    format_name: str,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> CompressResult:
    """Writes `source` in the format named in FORMATS to the folder `output`, which appears whole
    or not at all; what was written is opened and checked before it appears.

    Raises ConfigError for an unknown format, UnsupportedError for one that this model cannot have
    (the groups do not divide its columns, ...), OutputError when `output` cannot be written.
    """
    spec = find_format(format_name)
    _check_source(source, spec)
    job = _Job(source, spec, on_progress or (lambda done, total: None))
    with output_folder(output, overwrite) as folder:
        _copy_files(source.path, folder)
        write_shards(folder, job.tensors())
        config = json.dumps(job.config(), indent=2) + "\n"
        (folder / "config.json").write_text(config, "utf-8")
        written = Checkpoint.open(folder)
        bits_per_weight = checkpoint_bits_per_weight(written)
    return CompressResult(
        name=spec.name,
        path=output,
        bits_per_weight=bits_per_weight,
        file_bytes=written.file_bytes,
        num_quantized=len(job.quantized),
        kept=tuple(job.kept),
        clamped=job.clamped,
    )


def find_format(name: str) -> WeightSpec:
    """The format of that name. Raises ConfigError."""
    if name not in FORMATS:
        raise ConfigError(
            "there is no such format", seen=name, remedy=f"Known formats: {', '.join(FORMATS)}."
        )
    return FORMATS[name].spec


class _Job:
    """Makes the tensors one by one and remembers what it did."""

    def __init__(self, source: Checkpoint, spec: WeightSpec, on_progress: OnProgress) -> None:
        self._source = source
        self._spec = spec
        self._on_progress = on_progress
        self._linears = _linear_weights(source) if spec.is_integer else {}
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
        dtype = self._float_dtype()
        if "torch_dtype" in config:
            config["torch_dtype"] = CONFIG_DTYPES[dtype]
        if "dtype" in config or "torch_dtype" not in config:
            config["dtype"] = CONFIG_DTYPES[dtype]
        if self._spec.is_integer:
            config["quantization_config"] = quantization_config(self._spec, IGNORED_MODULES)
        return config

    def _convert(self, name: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
        if name in self._linears:
            weight = quantize(tensor.to_float32(), self._spec, FLOATS[tensor.dtype])
            self.quantized.append(self._linears[name])
            for suffix, part in encode(weight).items():
                yield f"{self._linears[name]}.{suffix}", part
        elif self._spec.is_integer or tensor.dtype not in FLOATS:
            self.kept.append(name)
            yield name, tensor
        else:
            result = cast(tensor.to_float32(), self._float_dtype())
            if result.num_clamped:
                self.clamped[name] = result.num_clamped
            yield name, result.tensor

    def _float_dtype(self) -> ScaleDType:
        """Of the floats in the folder: scales have the dtype of the weights they came from, so that
        a library that takes config.json's dtype for them dequantizes to the same bits."""
        if self._spec.dtype in ("fp32", "bf16", "fp16"):
            return self._spec.dtype
        return FLOATS[self._source.tensors[next(iter(self._linears))].dtype]


def _linear_weights(source: Checkpoint) -> dict[str, str]:
    """Module name by tensor name, for the linear layers of the transformer layers."""
    roles = linear_roles(source.spec)
    layers = range(source.spec.num_layers)
    modules = {source.linear_name(role, layer) for layer in layers for role in roles}
    return {f"{module}.weight": module for module in sorted(modules)}


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
    if spec.is_integer and transposed:
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
