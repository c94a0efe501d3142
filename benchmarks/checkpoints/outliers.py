"""A checkpoint with outlier channels that computes what the original computes.

Trained models of some billions of parameters have a few channels whose activations are many times
larger than the others (arXiv 2208.07339, section 4). Small models do not. Here a few channels of
each norm's weight are multiplied by a factor and the columns that read them divided by it; a power
of two makes both exact in every float dtype, so all logits stay as they are.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.formats.floating import cast
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.check_tensors import vector_tensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.smoothing import norm_pairs
from paredown.models.files.shard_writer import write_shards

Floats = npt.NDArray[np.float32]


def write_outliers(
    source: Checkpoint, folder: Path, *, num_channels: int, factor: float, seed: int = 0
) -> None:
    """Writes the copy into `folder`, which is made. Each norm inside a layer gets `num_channels`
    channels of its own, drawn by `seed`."""
    assert np.log2(factor).is_integer(), factor
    folder.mkdir()
    for path in source.path.iterdir():
        if path.suffix in (".json", ".jinja") and not path.name.endswith("index.json"):
            shutil.copyfile(path, folder / path.name)
    write_shards(folder, _tensors(source, _multipliers(source, num_channels, factor, seed)))
    (folder / "config.json").write_text(json.dumps(dict(source.config)))


def _multipliers(
    source: Checkpoint, num_channels: int, factor: float, seed: int
) -> Mapping[str, Floats]:
    """Returns by name the factors of each changed tensor, broadcast over its last dimension."""
    rng = np.random.default_rng(seed)
    spec, names = source.spec, source.names
    found: dict[str, Floats] = {}
    for layer in range(spec.num_layers):
        for pair in norm_pairs(spec.layers[layer]):
            chosen = rng.choice(spec.hidden_size, num_channels, replace=False)
            multiplier = np.ones(spec.hidden_size, np.float32)
            multiplier[chosen] = factor
            for kind in spec.layers[layer].norms.by_role()[pair.producer].parts:
                name = vector_tensor(names, f"{pair.producer}.{kind}", layer)
                found[name] = multiplier
            for role in pair.consumers:
                assert not names.source(role).transposed
                found[f"{names.linear(role, layer)}.weight"] = np.reciprocal(multiplier)
            for role in pair.followers:
                found[f"{names.router(role, layer)}.weight"] = np.reciprocal(multiplier)
    return found


def _tensors(
    source: Checkpoint, multipliers: Mapping[str, Floats]
) -> Iterator[tuple[str, StoredTensor]]:
    for name, tensor in source.tensors.items():
        if name not in multipliers:
            yield name, tensor
            continue
        dtype = STORED_DTYPES[tensor.dtype]
        assert dtype in ("fp32", "bf16", "fp16")
        yield name, cast(tensor.to_float32() * multipliers[name], dtype).tensor
