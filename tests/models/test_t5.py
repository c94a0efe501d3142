"""T5: logits and greedy tokens of Transformers, on checkpoints that it wrote itself."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes.tiny_t5 import EOS, KINDS, START, VOCAB_SIZE, greedy_t5, make_t5, write_t5
from paredown.errors import CheckpointError, ParedownError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.encoder_decoder import EncoderDecoder

TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def open_t5(kind: str, folder: Path, **changes: object):
    """Returns Transformers' model and the checkpoint that it wrote."""
    theirs = make_t5(kind, **changes)
    write_t5(theirs, folder)
    return theirs, Checkpoint.open(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_greedy_tokens_equal_transformers(kind: str, tmp_path: Path) -> None:
    theirs, checkpoint = open_t5(kind, tmp_path)
    ours = EncoderDecoder.from_checkpoint(checkpoint)
    draw = torch.Generator().manual_seed(1)
    encoder_ids = torch.randint(0, VOCAB_SIZE, (2, 150), generator=draw)
    ids = torch.randint(0, VOCAB_SIZE, (2, 140), generator=draw)
    with torch.no_grad():
        expected = theirs(input_ids=encoder_ids, decoder_input_ids=ids).logits
        assert (ours(encoder_ids, ids) - expected).abs().max() <= TOLERANCE
        found = torch.tensor([[START]])
        while found.shape[1] <= 12 and found[0, -1] != EOS:
            next_id = ours(encoder_ids[:1], found)[:, -1:].argmax(-1)
            found = torch.cat([found, next_id], dim=1)
    assert found[0, 1:].tolist() == greedy_t5(theirs, encoder_ids[0].tolist(), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    theirs, checkpoint = open_t5(kind, tmp_path)
    assert checkpoint.spec.num_parameters() == theirs.num_parameters()
    linear = [one for one in theirs.modules() if isinstance(one, torch.nn.Linear)]
    own = sum(one.weight.numel() for one in linear if one is not theirs.lm_head)
    assert checkpoint.spec.num_linear_parameters() == own


def test_older_names_of_the_embedding_are_passed_over(tmp_path: Path) -> None:
    theirs = make_t5("relu-tied")
    write_t5(theirs, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for stack in ("encoder", "decoder"):
        tensors[f"{stack}.embed_tokens.weight"] = tensors["shared.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert "encoder.embed_tokens.weight" not in Checkpoint.open(tmp_path).tensors
    tensors["encoder.block.9.layer.0.layer_norm.weight"] = torch.ones(64)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"block\.9.*not part of the model"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-none"}, "feed_forward_proj"),
        ({"relative_attention_num_buckets": 30}, "30 buckets"),
        ({"relative_attention_max_distance": 16}, "a largest distance of 16"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder"),
        ({"d_kv": None}, "'d_kv'"),
        ({"num_decoder_layers": 3}, r"decoder\.block\.2.*is missing"),
        ({"feed_forward_proj": "relu"}, r"DenseReluDense\.wi\.weight' is missing"),
    ],
)
def test_bad_configs_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    write_t5(make_t5("gated-tied"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ParedownError, match=message):
        Checkpoint.open(tmp_path)
