"""StoredFormat: reads and writes one of the ways in which Hugging Face checkpoints hold quantized
linear layers."""

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
    """How the linear modules of a checkpoint are stored, for the section of config.json.

    `specs`   the specs of the modules in codes, by name
    `output`  the name of the output layer
    `floats`  the layers' other modules
    `others`  routers and the output layer, where they stay floats
    `embedding`  the name of the table of embeddings, which may be among the modules
    `common`  the form of every module that a section need not name; None where it names each
    `kv`      how keys and values should be kept, in compressed-tensors' terms; None if it is open
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
    `holds`   the kind of spec of its weights
    `read`    parses the section, given the names of all tensors; raises UnsupportedError for
              unknown fields, CheckpointError for invalid ones
    `check`   raises UnsupportedError for a spec and shape (out, in) that it cannot hold
    `encode`  returns a weight's tensors by suffix; raises UnsupportedError for numbers it cannot
              hold
    `section`  builds the section of config.json; raises UnsupportedError for a layout that it
               cannot express
    `check_mixture`  raises UnsupportedError for specs that cannot share one section
    `file`    the name of a file that repeats the section, where a reader looks for it there
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
