"""Encoders and classifiers that are written and opened again are the same."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, VOCAB_SIZE
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder

WRITERS = {f"vectors-{name}": write for name, write in ENCODERS.items() if "masked" not in name} | {
    f"labels-{name}": write for name, write in CLASSIFIERS.items()
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_written_encoder_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / "source")
    source = Checkpoint.open(tmp_path / "source")
    write_decoder(Decoder.from_checkpoint(source), source, tmp_path / "copy")
    copy = Checkpoint.open(tmp_path / "copy")
    assert copy.spec == source.spec
    ids = torch.randint(5, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(0))
    one, other = (Decoder.from_checkpoint(each) for each in (source, copy))
    with torch.no_grad():
        vectors = one.encode(ids)
        assert torch.equal(vectors, other.encode(ids))
        assert torch.equal(one.apply_head(vectors), other.apply_head(vectors))


def test_names_of_older_files_are_known(tmp_path: Path) -> None:
    """BERT's first checkpoints call the vectors of a norm gamma and beta."""
    ENCODERS["bert"](tmp_path)
    ids = torch.tensor([[7, 8, 9]])
    with torch.no_grad():
        expected = Decoder.from_checkpoint(Checkpoint.open(tmp_path)).encode(ids)
        tensors = load_file(tmp_path / "model.safetensors")
        older = {
            "bert."
            + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): one
            for name, one in tensors.items()
        }
        older["cls.predictions.bias"] = torch.zeros(VOCAB_SIZE)
        older["bert.embeddings.position_ids"] = torch.arange(64)[None]
        save_file(older, tmp_path / "model.safetensors")
        assert torch.equal(Decoder.from_checkpoint(Checkpoint.open(tmp_path)).encode(ids), expected)


def test_a_decoder_of_berts_class_is_refused(tmp_path: Path) -> None:
    ENCODERS["bert"](tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "is_decoder": True}))
    with pytest.raises(UnsupportedError, match="is_decoder"):
        Checkpoint.open(tmp_path)
