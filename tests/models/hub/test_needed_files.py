"""Which files of a repository are fetched."""

from pathlib import Path

from paredown.models.hub.hub_name import HubName
from paredown.models.hub.needed_files import small_files, weight_files

ENCODER = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "artifact.metadata",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "2_Dense/pytorch_model.bin",
    "model.safetensors",
    "onnx/model.onnx",
    "onnx/config.json",
    "openvino/model.safetensors",
    "modeling.py",
    "picture.png",
)


def test_the_modules_of_an_encoder_are_fetched_and_no_code() -> None:
    assert small_files(ENCODER) == [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "artifact.metadata",
        "config.json",
        "modules.json",
        "sentence_bert_config.json",
    ]
    name = HubName.parse("org/encoder")
    assert name is not None
    found = weight_files(name, ENCODER, Path("/nowhere"))
    # The last file of all says that a cached model is whole.
    assert found == ["2_Dense/model.safetensors", "model.safetensors"]
