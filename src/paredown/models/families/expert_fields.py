"""Reads experts from a config, and holds the Qwen families' names for their modules."""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.errors import CheckpointError
from paredown.models.families.family import LinearModule
from paredown.models.families.fields import Fields
from paredown.spec.experts import Experts

_EXPERT = "layers.{layer}.mlp.experts.{expert}"
LINEARS: Mapping[str, LinearModule] = {
    "experts.gate": LinearModule(module=f"{_EXPERT}.gate_proj"),
    "experts.up": LinearModule(module=f"{_EXPERT}.up_proj"),
    "experts.down": LinearModule(module=f"{_EXPERT}.down_proj"),
}
ROUTER = "layers.{layer}.mlp.gate"
# Names of the experts' sizes in a config, beside the sizes of every layer.
CONFIG_FIELDS: Mapping[str, str] = {
    "num_experts": "num_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "expert_size": "moe_intermediate_size",
    "dense_layers": "mlp_only_layers",
    "expert_step": "decoder_sparse_step",
}


def experts_from_gguf(fields: Fields, arch: str) -> dict[str, object]:
    """Returns a GGUF file's expert fields under the names of the Qwen families."""
    return {
        "num_experts": fields.integer(f"{arch}.expert_count"),
        "num_experts_per_tok": fields.integer(f"{arch}.expert_used_count"),
        "moe_intermediate_size": fields.integer(f"{arch}.expert_feed_forward_length"),
    }


@dataclass(frozen=True, kw_only=True)
class ExpertLayers:
    """Tells which layers have the experts: those whose number, counted from 1, is a multiple of
    `step`, except `dense_layers`, which count from 0."""

    experts: Experts
    step: int = 1
    dense_layers: frozenset[int] = frozenset()

    def in_layer(self, layer: int) -> Experts | None:
        """Returns the experts of that layer, counted from 0, or None."""
        has_them = layer not in self.dense_layers and (layer + 1) % self.step == 0
        return self.experts if has_them else None


# The names that a config may use for the number of experts.
NUM_EXPERTS_FIELDS = ("num_experts", "num_local_experts")


def read_num_experts(fields: Fields, name: str = "num_experts") -> tuple[int, int]:
    """Returns the number of experts and how many each token is routed to. The number of experts has
    two names; published models use `name`."""
    found = [one for one in (name, *NUM_EXPERTS_FIELDS) if one in fields.config]
    num = fields.integer(found[0] if found else name)
    num_per_token = fields.integer("num_experts_per_tok")
    if num_per_token > num:
        raise CheckpointError(
            f"{fields.where} sends each token to more experts than there are",
            seen=f"num_experts_per_tok {num_per_token}, {num} experts",
            remedy="Correct the fields, or download the checkpoint again.",
        )
    return num, num_per_token


def read_qwen_experts(fields: Fields, shared_size: int | None) -> ExpertLayers | None:
    """Returns the experts of qwen2_moe and qwen3_moe, or None where `num_experts` is 0 and every
    layer is dense."""
    if any(fields.config.get(name) == 0 for name in NUM_EXPERTS_FIELDS):
        return None
    num, num_per_token = read_num_experts(fields)
    experts = Experts(
        num=num,
        num_per_token=num_per_token,
        size=fields.integer("moe_intermediate_size"),
        is_normalized=fields.flag("norm_topk_prob", False),
        is_gated=True,
        activation=fields.activation("hidden_act", "silu"),
        shared_size=shared_size,
    )
    return ExpertLayers(
        experts=experts,
        step=fields.integer("decoder_sparse_step", 1),
        dense_layers=_dense_layers(fields),
    )


def _dense_layers(fields: Fields) -> frozenset[int]:
    name = "mlp_only_layers"
    value = fields.config.get(name) or []
    if not isinstance(value, list) or any(type(layer) is not int for layer in value):
        raise fields.wrong(name, "a list of layers")
    return frozenset(value)
