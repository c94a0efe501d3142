"""StoredFormat: one way in which checkpoints of the Hugging Face kind hold quantized linear layers,
both ways."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from paredown.formats.stored.stored_form import Quantization
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import StoredSpec, Weight

Spec = TypeVar("Spec", bound=StoredSpec)
Held = TypeVar("Held", bound=Weight)


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[Spec]):
    """How the linear modules of a checkpoint are stored, for config.json to say.

    `specs`   of the modules that are codes, by name
    `output`  the name of the output layer
    `floats`  the other modules of the layers
    `others`  routers and the output layer, where they stay floats
    `embedding`  the name of the table of embeddings, which may be among the modules
    `common`  the form of every module that a section need not name; None where it names each
    `kv`      how keys and values are to be kept, in the words of compressed-tensors; None where
              nothing is said
    """

    specs: Mapping[str, Spec]
    output: str
    floats: Collection[str] = ()
    others: Collection[str] = ()
    common: Spec | None = None
    embedding: str | None = None
    kv: Mapping[str, object] | None = None

    @property
    def all_floats(self) -> tuple[str, ...]:
        return (*self.floats, *self.others)


@dataclass(frozen=True, kw_only=True)
class StoredFormat(Generic[Spec, Held]):
    """A row of formats/stored/table.py.

    `method`  the quant_method of its section of config.json
    `holds`   the kind of spec that its weights have
    `read`    what the section and the names of all tensors say; raises UnsupportedError for what we
              do not know, CheckpointError for what is not valid
    `check`   raises UnsupportedError for a spec and (out, in) shape that it has no place for
    `encode`  a weight's tensors by suffix; raises UnsupportedError for numbers it has no place for
    `section` of config.json; raises UnsupportedError for a layout that it cannot say
    `check_mixture`  raises UnsupportedError for specs that cannot stand in one section
    `file`    repeats the section under this name, where a reader looks for it there
    `kv_field`  the section's field for how keys and values are kept; None where it has none
    """

    method: str
    holds: type[Spec]
    read: Callable[[Mapping[str, object], Collection[str]], Quantization]
    check: Callable[[Spec, tuple[int, int]], None]
    encode: Callable[[Held], dict[str, StoredTensor]]
    section: Callable[[Layout[Spec]], dict[str, object]]
    check_mixture: Callable[[Collection[Spec]], None] = lambda specs: None
    file: str | None = None
    kv_field: str | None = None
