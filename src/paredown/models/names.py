"""Names: the module names of one checkpoint, with its prefix detected."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from paredown.errors import CheckpointError
from paredown.models.families.family import Family, LinearModule
from paredown.models.families.named_head import NamedHead
from paredown.models.roles import linear_places
from paredown.spec.experts import expert_index, role_kind
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Names:
    """Full module names; a tensor's name is one of them plus ".weight", ".bias" or a packed suffix.
    `head` has the names of the head's tensors by their roles ("head.0.weight"), without those that
    lie in files of their own."""

    family: Family
    prefix: str
    head: Mapping[str, str] = field(default_factory=dict)

    def linear(self, role: str, layer: int) -> str:
        module = self.source(role).module
        return self.prefix + module.format(layer=layer, expert=expert_index(role))

    def source(self, role: str) -> LinearModule:
        return self.family.linears[role_kind(role)]

    def fused(self, role: str) -> tuple[str, ...]:
        """Returns all roles whose rows share that role's module, in order."""
        return self.source(role).fused or (role,)

    def modules(self, roles: Iterable[str], layer: int) -> dict[str, tuple[str, ...]]:
        """Returns the modules that hold those roles of a layer, each with all its roles."""
        return {self.linear(role, layer): self.fused(role) for role in roles}

    def layer_modules(self, spec: ModelSpec) -> list[str]:
        """Returns the linear modules of all layers, in order, those of an encoder first."""
        names = [self.linear(role, layer) for role, layer in linear_places(spec)]
        if spec.encoder is not None:
            names = [*self.encoder.layer_modules(spec.encoder), *names]
        return list(dict.fromkeys(names))

    def num_blocks(self, role: str, layer: LayerSpec) -> int:
        """Returns the number of row blocks in the role's module, each of which holds all its roles
        in turn."""
        return layer.attention.num_heads if self.source(role).by_head else 1

    def router(self, role: str, layer: int) -> str:
        """Returns the name of the "router" or "shared_gate" of a layer."""
        return self.prefix + self.family.routers[role].format(layer=layer)

    def norm(self, role: str, layer: int | None) -> str:
        return self.prefix + self.family.norms[role].format(layer=layer)

    @property
    def embedding(self) -> str:
        return self.prefix + self.family.embedding

    @property
    def position_embedding(self) -> str:
        assert self.family.position_embedding is not None
        return self.prefix + self.family.position_embedding

    @property
    def token_type_embedding(self) -> str:
        assert self.family.token_type_embedding is not None
        return self.prefix + self.family.token_type_embedding

    @property
    def relative_biases(self) -> str:
        """Returns the name of the table of relative positions that layers share."""
        assert self.family.relative_biases is not None
        return self.prefix + self.family.relative_biases

    @property
    def encoder(self) -> "Names":
        """The names of the encoder of an encoder-decoder."""
        assert self.family.encoder is not None
        return replace(self, family=self.family.encoder)

    @property
    def output(self) -> str:
        """Returns the output layer's name, which takes no prefix."""
        return self.family.output

    @property
    def output_names(self) -> tuple[str, ...]:
        """Returns every name under which a section of config.json may mention the output layer."""
        return (self.family.output, *self.family.output_aliases)


def find_names(
    family: Family, tensor_names: Collection[str], head: NamedHead | None = None
) -> Names:
    """Detects the prefix by trying the family's prefixes on the embedding; names of the head may
    have it too. Raises CheckpointError when none fits."""
    tried = [Names(family=family, prefix=prefix) for prefix in family.prefixes]
    for names in tried:
        # A quantized table has tensors of other names (weight_packed).
        if any(name.startswith(f"{names.embedding}.weight") for name in tensor_names):
            own = {} if head is None else head.with_prefix(names.prefix)
            return replace(names, head=own)
    raise CheckpointError(
        f"tensor '{tried[0].embedding}.weight' is missing from the checkpoint",
        seen=", ".join(map(repr, sorted(tensor_names)[:5])) or "no tensors",
        remedy=f"A {family.model_type} checkpoint needs it; download the checkpoint again.",
    )
