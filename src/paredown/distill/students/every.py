"""A student of every k-th layer of its teacher, from the first on."""

from dataclasses import replace

from paredown.compress.cut.cut_tensors import CutTensors
from paredown.compress.cut.kept_units import KeptUnits
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_fields import config_of
from paredown.models.kept_layers import composed
from paredown.models.paredown_section import KEPT_LAYERS, with_key


def every_layer(teacher: Checkpoint, k: int) -> Checkpoint:
    """Returns what is left of the teacher, whose weights keep their bits. Raises ConfigError for a
    teacher of fewer layers."""
    num_layers = teacher.spec.num_layers
    if k > num_layers:
        raise ConfigError(
            "the teacher has too few layers for this student",
            seen=f"every-{k} of {num_layers} layers",
            remedy=f"Give at most every-{num_layers}, or another student (width-50, a config).",
        )
    kept = tuple(range(0, num_layers, k))
    spec = replace(teacher.spec, layers=tuple(teacher.spec.layers[layer] for layer in kept))
    numbers = composed(teacher.kept_layers, kept)
    units = [KeptUnits(layer=layer) for layer in kept]
    return replace(
        teacher,
        spec=spec,
        config=with_key(config_of(spec, teacher.config, kept), KEPT_LAYERS, list(numbers)),
        tensors=CutTensors(teacher, spec, units, {}),
        blocks={},
        kept_layers=numbers,
    )
