"""Finds the linear layers of a checkpoint that are stored as codes, by name."""

from paredown.formats.weight import CoreWeight
from paredown.models.check_tensors import linear_modules, router_modules
from paredown.models.checkpoint import Checkpoint


class PackedModules:
    """`shapes` has the shape (out, in) of each; `floats` names the other linear modules, including
    routers."""

    def __init__(self, source: Checkpoint) -> None:
        self._source = source
        self.embedding = source.names.embedding
        self.has_coded_embedding = source.is_coded(self.embedding)
        modules = {one.name: one for one in linear_modules(source.spec, source.names)}
        self.shapes = {name: one.shape for name, one in modules.items() if source.is_coded(name)}
        self.floats = [name for name in modules if not source.is_coded(name)]
        self.floats += router_modules(source.spec, source.names)
        outputs = source.names.output_names
        if source.spec.is_tied:
            # Other programs make it a module all the same.
            self.floats += outputs
        elif source.names.output not in self.shapes:
            self.floats += outputs[1:]

    def owner(self, tensor: str) -> str | None:
        """Returns the packed module that a tensor belongs to, if any; a bias belongs to none."""
        module, _, suffix = tensor.rpartition(".")
        known = module in self.shapes or (module == self.embedding and self.has_coded_embedding)
        return module if known and suffix != "bias" else None

    def weight(self, module: str) -> CoreWeight:
        return self._source.coded(module)
