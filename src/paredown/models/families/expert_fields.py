"""Experts from a config, and what the Qwen families call their modules."""

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
# What a config calls their sizes, beside those of every layer.
CONFIG_FIELDS: Mapping[str, str] = {
    "num_experts": "num_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "expert_size": "moe_intermediate_size",
    "dense_layers": "mlp_only_layers",
}


def experts_from_gguf(fields: Fields, arch: str) -> dict[str, object]:
    """A file's fields of experts, in the words of the Qwen families."""
    return {
        "num_experts": fields.integer(f"{arch}.expert_count"),
        "num_experts_per_tok": fields.integer(f"{arch}.expert_used_count"),
        "moe_intermediate_size": fields.integer(f"{arch}.expert_feed_forward_length"),
    }


@dataclass(frozen=True, kw_only=True)
class ExpertLayers:
    """Which layers have the experts: those whose number, counted from 1, is a multiple of `step`,
    but for `dense_layers`, counted from 0."""

    experts: Experts
    step: int = 1
    dense_layers: frozenset[int] = frozenset()

    def in_layer(self, layer: int) -> Experts | None:
        """The experts of that layer, counted from 0, if it has them."""
        has_them = layer not in self.dense_layers and (layer + 1) % self.step == 0
        return self.experts if has_them else None


_NUM_EXPERTS = ("num_experts", "num_local_experts")


def read_num_experts(fields: Fields, name: str = "num_experts") -> tuple[int, int]:
    """How many there are and how many a token is sent to. The number has two names, of which
    `name` is the published models'."""
    found = [one for one in (name, *_NUM_EXPERTS) if one in fields.config]
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
    """Experts of qwen2_moe and qwen3_moe; None where `num_experts` is 0 and every layer dense."""
    if any(fields.config.get(name) == 0 for name in _NUM_EXPERTS):
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
