"""A student of a config.json, which knows nothing yet: random weights, and its teacher's tokens."""

from dataclasses import dataclass
from pathlib import Path

import torch

from paredown.errors import CapacityError, ConfigError
from paredown.kernels.probe import available_memory_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import check_runs, family_from_config, read_config
from paredown.models.config_alone import read_config_alone
from paredown.models.decoder.decoder import Decoder
from paredown.models.families.fields import Fields
from paredown.models.files.folder_files import float_config
from paredown.models.files.json_file import read_json_object
from paredown.models.names import Names
from paredown.models.paredown_section import KEPT_LAYERS, PRUNED, with_key
from paredown.models.text_part import text_config
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ScaleDType
from paredown.units import format_bytes

# Transformers' default of `initializer_range`.
_SPREAD = 0.02
_NO_DTYPE: ScaleDType = "bf16"


@dataclass(frozen=True, kw_only=True)
class ConfigStudent:
    """`shape` has the config, the spec and the names of a checkpoint, and its teacher's files, but
    no tensors. `dtype` is what its weights are stored in."""

    decoder: Decoder
    shape: Checkpoint
    dtype: ScaleDType


def from_config(teacher: Checkpoint, path: Path, seed: int) -> ConfigStudent:
    """Makes the student: matrices from a normal distribution of `initializer_range`, norms that
    change nothing, biases of 0; the same for the same seed.

    Raises CheckpointError and UnsupportedError for a config that cannot be read or run, ConfigError
    for one of another vocabulary, and CapacityError for one that does not fit in memory.
    """
    alone = read_config_alone(path)
    config, _ = text_config(read_json_object(path))
    config = with_key(with_key(float_config(config), KEPT_LAYERS, None), PRUNED, None)
    family = family_from_config(config)
    check_runs(family)
    spec, _ = read_config(config)
    _check(spec, teacher.spec, path)
    spread = Fields(config, path.name).number("initializer_range", _SPREAD)
    dtypes: dict[str, ScaleDType] = {"fp32": "fp32", "fp16": "fp16"}
    return ConfigStudent(
        decoder=random_decoder(spec, spread, seed),
        shape=Checkpoint(
            path=teacher.path,
            config=config,
            spec=spec,
            tensors={},
            files=(),
            file_bytes=0,
            names=Names(family=family, prefix=family.prefixes[0]),
        ),
        dtype=dtypes.get(alone.weights.dtype, _NO_DTYPE),
    )


def random_decoder(spec: ModelSpec, spread: float, seed: int) -> Decoder:
    """Returns a decoder of that spec whose matrices have this standard deviation."""
    with torch.device("meta"):
        decoder = Decoder(spec)
    decoder.to_empty(device="cpu").requires_grad_(False)
    random = torch.Generator().manual_seed(seed)
    for name, parameter in decoder.named_parameters():
        module = decoder.get_submodule(name.rpartition(".")[0])
        if name.endswith(".bias"):
            parameter.zero_()
        elif parameter.ndim > 1:
            parameter.normal_(std=spread, generator=random)
        else:
            parameter.fill_(1 - float(getattr(module, "offset", 0.0)))
    return decoder.eval()


def _check(spec: ModelSpec, teacher: ModelSpec, path: Path) -> None:
    if spec.vocab_size != teacher.vocab_size:
        raise ConfigError(
            f"{path} is of another vocabulary than the teacher, whose tokens the student gets",
            seen=f"vocab_size {spec.vocab_size:,}, and {teacher.vocab_size:,} of the teacher",
            remedy=f'Write "vocab_size": {teacher.vocab_size} into it.',
        )
    needed, available = 4 * spec.num_parameters(), available_memory_bytes()
    if needed > available:
        raise CapacityError(
            f"the student of {path} does not fit in memory",
            seen=f"{format_bytes(needed)} of {format_bytes(available)} available",
            remedy="Make it smaller.",
        )
