"""Models of experts whose router leaves some of them out."""

from pathlib import Path

import torch

from fakes.tiny_models import make_model


def leave_out_experts(folder: Path, family: str, unseen: list[int], **changes: object) -> None:
    """Writes a model whose router sends no token to `unseen`."""
    model = make_model(family, torch.float32, 3, **changes)
    with torch.no_grad():
        for layer in model.model.layers:
            # All tokens are positive in the first channel, the only one that the router reads.
            layer.post_attention_layernorm.weight[0] = 8.0
            layer.input_layernorm.weight[0] = 0.0
            router = layer.mlp.gate.weight
            router[:, 0] = 0.0
            router[unseen, 0] = -100.0
        model.model.embed_tokens.weight[:, 0] = 50.0
    model.save_pretrained(folder)
