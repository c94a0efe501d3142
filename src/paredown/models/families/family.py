"""Family: the config fields and tensor names of one `model_type`. It is data without behaviour."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paredown.models.families.fields import Fields
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.named_head import NamedHead, NamedStep
from paredown.spec.model import ModelSpec

ReadHead = Callable[[Fields, ModelSpec], NamedHead]
ReadSteps = Callable[[Fields, ModelSpec], Sequence[NamedStep]]


@dataclass(frozen=True, kw_only=True)
class LinearModule:
    """The module that holds one role. Where several roles share it, `fused` lists them all in the
    order of their rows; with `by_head` that order repeats in each head (GPT-NeoX).

    A `transposed` module (GPT-2's Conv1D) stores its float weight as [in, out].
    """

    module: str
    transposed: bool = False
    fused: tuple[str, ...] = ()
    by_head: bool = False


def fused_modules(
    module: str, roles: tuple[str, ...], *, transposed: bool = False, by_head: bool = False
) -> dict[str, LinearModule]:
    """Returns the entries of a family's `linears` for a module that several roles share."""
    shared = LinearModule(module=module, transposed=transposed, fused=roles, by_head=by_head)
    return dict.fromkeys(roles, shared)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names follow the prefix; `{layer}` stands for the layer's number, `{expert}` for the
    expert's.

    `prefixes`   what may stand before every name but `output`, in the order they are tried
    `linears`    linear role -> module; "experts.gate" is the gate of every expert
    `routers`    "router" and "shared_gate" of a layer with experts -> module
    `norms`      norm role (spec/norm.py) -> module, and "final_norm" and "embedding_norm"
    `embedding`, `position_embedding`, `token_type_embedding`, `relative_biases`, `output`   modules
    `encoder`    the names of a decoder's encoder, which shares its prefixes and its embedding
    `variant`    of config.json, the family with its names, where these depend on it (T5)
    `output_aliases`   what Transformers calls the output layer beside its name in the files
    `config_fields`   size -> field of config.json, for sizes that may change (config_fields.py)
    `untied_fields`   fields that config.json gets, unless it has them, when a tied output layer
                 becomes one of its own
    `layer_lists`   fields of config.json that are lists with an entry for each layer
    `noted`      fields that published configs carry and the class in Transformers passes over: a
                 note says so, where another family would refuse them
    `ignorable`  regular expressions of full tensor names that older exports carry and nobody needs
    `renamed`    regular expressions of parts of names in older files, and what stands there now
    `classifier` the head of its class for sequence classification, None where there is none
    `masked_lm`  the steps of its class that predicts masked tokens
    `gguf`       what it is called in a GGUF file, None where it is neither read nor written
    `left_out`   what of it a spec cannot say, for people: such a family is costed and never run
    """

    model_type: str
    read_spec: Callable[[Fields], ModelSpec]
    prefixes: tuple[str, ...]
    linears: Mapping[str, LinearModule]
    norms: Mapping[str, str]
    embedding: str
    position_embedding: str | None = None
    token_type_embedding: str | None = None
    relative_biases: str | None = None
    encoder: "Family | None" = None
    variant: "Callable[[Mapping[str, object]], Family] | None" = None
    output: str = "lm_head"
    output_aliases: tuple[str, ...] = ()
    routers: Mapping[str, str] = field(default_factory=dict)
    layer_lists: tuple[str, ...] = ("layer_types",)
    noted: tuple[str, ...] = ()
    ignorable: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    classifier: ReadHead | None = None
    masked_lm: ReadSteps | None = None
    config_fields: Mapping[str, str] = field(default_factory=dict)
    untied_fields: Mapping[str, object] = field(default_factory=dict)
    gguf: GGUFRows | None = None
    left_out: str | None = None
