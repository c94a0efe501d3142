"""The model as ONNX: from a sentence-transformers folder to the token vectors, in float32 or with
int8 weights and activations (dynamic, as sentence-transformers' own export makes them)."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime.quantization
import torch
from torch import Tensor, nn
from transformers import AutoModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _TokenVectors(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids, attention_mask, token_type_ids).last_hidden_state
        return found


def onnx_file(model: Path, folder: Path) -> Path:
    """Returns the float32 file, which is made at the first call."""
    path = folder / "model.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        module = _TokenVectors(AutoModel.from_pretrained(model).eval())
        example = torch.ones(2, 8, dtype=torch.int64)
        axes = {name: {0: "batch", 1: "tokens"} for name in (*INPUTS, "last_hidden_state")}
        torch.onnx.export(
            module,
            (example, example, torch.zeros_like(example)),
            str(path),
            input_names=list(INPUTS),
            output_names=["last_hidden_state"],
            dynamic_axes=axes,
            dynamo=False,
        )
    return path


def int8_onnx_file(model: Path, folder: Path) -> Path:
    """Returns the file in int8, which is made at the first call."""
    path = folder / "model_int8.onnx"
    if not path.exists():
        onnxruntime.quantization.quantize_dynamic(
            str(onnx_file(model, folder)),
            str(path),
            weight_type=onnxruntime.quantization.QuantType.QInt8,
            per_channel=True,
        )
    return path


def mean_normalized(
    vectors_BTD: npt.NDArray[np.float32], mask_BT: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Returns the mean of each text's token vectors, divided by its length, [B, D]."""
    weights_BT1 = mask_BT[..., None].astype(np.float32)
    mean_BD = (vectors_BTD * weights_BT1).sum(1) / weights_BT1.sum(1)
    return np.asarray(mean_BD / np.linalg.norm(mean_BD, axis=1, keepdims=True))
