"""A student of every k-th layer of its teacher, from the first on."""

import re
from dataclasses import replace
from pathlib import Path

from paredown.compress.cut.cut_tensors import CutTensors
from paredown.compress.cut.kept_units import KeptUnits
from paredown.compress.require_floats import require_floats
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_fields import config_of
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder
from paredown.models.kept_layers import composed
from paredown.models.paredown_section import KEPT_LAYERS, PRUNED, with_key

_NAME = re.compile(r"every-([1-9]\d{0,3})")


def parse_every(choice: str) -> int | None:
    """Returns k of "every-k"; None for anything else."""
    match = _NAME.fullmatch(choice)
    return None if match is None else int(match[1])


def write_every(teacher: Checkpoint, k: int, output: Path) -> None:
    """Writes the folder `output`. The weights keep their bits. Raises ConfigError where no layer
    would go, UnsupportedError for a teacher whose weights are no floats, and OutputError."""
    require_floats(teacher)
    kept = tuple(range(0, teacher.spec.num_layers, k))
    if len(kept) == teacher.spec.num_layers:
        raise ConfigError(
            "the student would be its teacher",
            seen=f"every-{k} of {teacher.spec.num_layers} layers",
            remedy="Give every-2 or more.",
        )
    spec = replace(teacher.spec, layers=tuple(teacher.spec.layers[layer] for layer in kept))
    numbers = composed(teacher.kept_layers, kept)
    config = with_key(config_of(spec, teacher.config, kept), KEPT_LAYERS, list(numbers))
    units = [KeptUnits(layer=layer) for layer in kept]
    left = replace(
        teacher,
        spec=spec,
        config=with_key(config, PRUNED, None),
        pruned={},
        tensors=CutTensors(teacher, spec, units, {}),
        blocks={},
        kept_layers=numbers,
    )
    write_decoder(Decoder.from_checkpoint(left), left, output)
