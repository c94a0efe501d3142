"""A model's shape from its config.json alone, without weights."""

from dataclasses import dataclass
from pathlib import Path

from paredown.models.config import family_from_config, read_config
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import read_json_object
from paredown.models.text_part import text_config
from paredown.shown import shown_lines
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

# Transformers' defaults for fields that configs of draft models leave out (EAGLE, arXiv
# 2401.15077). A checkpoint that is loaded must have these fields.
DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"max_position_embeddings": 2048},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
}
CONFIG_NAME = "config.json"
_DTYPES = {
    "float32": WeightSpec(dtype="fp32"),
    "float16": WeightSpec(dtype="fp16"),
    "bfloat16": WeightSpec(dtype="bf16"),
}
# No model has this many. With weights, the first missing tensor ends any loop over the experts;
# without weights nothing else would.
MAX_EXPERTS = 10_000


@dataclass(frozen=True, kw_only=True)
class ConfigAlone:
    """A spec from config.json. `weights` is the dtype that the config names for the floats, by
    default bf16."""

    spec: ModelSpec
    weights: WeightSpec
    notes: tuple[str, ...]


def is_config_alone(path: Path) -> bool:
    """Returns whether `path` is a JSON file, or a folder with config.json but without weights."""
    if path.suffix == ".json":
        return True
    return (path / CONFIG_NAME).is_file() and not any(path.glob("*.safetensors"))


def read_config_alone(path: Path) -> ConfigAlone:
    """Reads a family that can be run or only costed. Raises CheckpointError and UnsupportedError as
    `read_config` does, and CheckpointError for more layers or experts than any model has."""
    file = path / CONFIG_NAME if path.is_dir() else path
    config, part_notes = text_config(read_json_object(file))
    for name in ("num_local_experts", "num_experts"):
        count = config.get(name)
        if isinstance(count, int) and count > MAX_EXPERTS:
            raise Fields(config, file.name).wrong(name, f"an integer from 1 to {MAX_EXPERTS}")
    dtype = config.get("torch_dtype", config.get("dtype"))
    notes = [f"{file.name} alone: no weights were looked at"]
    if "quantization_config" in config:
        notes.append(f"the quantization_config of {file.name} was not looked at; see --weights")
    model_type = Fields(config).text("model_type")
    absent = {
        name: value
        for name, value in DEFAULTS.get(model_type, {}).items()
        if name not in config and not (name == "num_local_experts" and "num_experts" in config)
    }
    if absent:
        taken = ", ".join(f"{name} {value}" for name, value in absent.items())
        notes.append(f"{file.name} lacks fields, taken as {model_type}'s default: {taken}")
        config |= absent
    family = family_from_config(config)
    spec, config_notes = read_config(config)
    notes += [*part_notes, *config_notes]
    if family.left_out is not None:
        notes.append(f"{model_type} is costed, not run; left out: {family.left_out}")
    return ConfigAlone(
        spec=spec,
        weights=_DTYPES.get(str(dtype), WeightSpec(dtype="bf16")),
        notes=shown_lines(*notes),
    )
