"""Encoders are compressed as decoders are: what flows is what the plain encoder computes, the head
and its files stay, and recipes that need predictions are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from fakes.encoder_folder import DENSE_SIZE, classifier, embedder
from fakes.tiny_encoders import VOCAB_SIZE
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

TEXT = torch.tensor([[0, 17, 203, 99, 42, 250, 8, 1]])
# A recipe, and how near its texts' vectors must be to the original's.
RECIPES = {
    "bf16": 0.9999,
    "int8": 0.999,
    "w8a8": 0.999,
    "w8a8-static": 0.999,
    "smoothquant-w8a8-static": 0.999,
    "gptq-int8": 0.999,
    "gptq-int4-g32": 0.98,
    "awq-int4-g32": 0.98,
    "hqq-int4-g32": 0.98,
    "int8-embedding-int8": 0.999,
}


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    texts_NT = rng.integers(2, VOCAB_SIZE, (8, 24))
    texts_NT[:, 0], texts_NT[:, -1] = 0, 1
    return Calibration(windows_NT=texts_NT, source="random tokens")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(embedder(tmp_path_factory.mktemp("models") / "in"))


def vector(checkpoint: Checkpoint) -> torch.Tensor:
    decoder = Decoder.from_checkpoint(checkpoint)
    with torch.inference_mode():
        return decoder.apply_head(decoder.encode(TEXT))[0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_keep_vectors_near_the_originals(
    recipe: str, source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", recipe, calibration=calibration)
    written = Checkpoint.open(made.path)
    assert written.is_quantized == (recipe != "bf16")
    assert written.spec.head == source.spec.head
    assert written.encoder_settings == source.encoder_settings
    cosine = torch.nn.functional.cosine_similarity(vector(written), vector(source), dim=0)
    assert RECIPES[recipe] < cosine < 1
    assert vector(written).shape == (DENSE_SIZE,)


def test_the_walk_sees_what_the_whole_encoder_computes(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", "w8a8-static", calibration=calibration)
    written = Checkpoint.open(made.path)
    largest: dict[str, float] = {}
    decoder = Decoder.from_checkpoint(source)

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        largest[point] = float(x.abs().max())
        return x

    decoder.layers[0].tap = tap
    with torch.inference_mode():
        decoder.encode(torch.from_numpy(calibration.windows_NT))
    # Nothing before the first layer's q is rounded.
    scale = written.linear("q", 0).input_scale
    assert scale == pytest.approx(largest["attention_input"] / 127.5, rel=1e-5)


def test_modules_and_head_files_are_copied(source: Checkpoint, tmp_path: Path) -> None:
    made = compress(source, tmp_path / "out", "int8")
    for name in (
        "modules.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ):
        assert (made.path / name).read_bytes() == (source.path / name).read_bytes()


def test_a_classifiers_head_keeps_its_bits(tmp_path: Path) -> None:
    source = Checkpoint.open(classifier(tmp_path / "in"))
    made = compress(source, tmp_path / "out", "int8")
    written = Checkpoint.open(made.path)
    for name in source.names.head.values():
        assert np.array_equal(written.tensors[name].array, source.tensors[name].array)


@pytest.mark.parametrize("recipe", ["int8", "w8a8", "int4-g32", "smoothquant-w8a8-static"])
def test_transformers_reads_what_was_written(
    recipe: str, source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", recipe, calibration=calibration)
    model = AutoModel.from_pretrained(made.path, dtype=torch.float32).eval()
    with torch.inference_mode():
        theirs = model(TEXT).last_hidden_state
        ours = Decoder.from_checkpoint(Checkpoint.open(made.path)).encode(TEXT)
    # Inputs that the scheme rounds are not rounded by the decoder.
    cosine = torch.nn.functional.cosine_similarity(theirs.flatten(), ours.flatten(), dim=0)
    assert cosine > (0.9999 if recipe in ("int8", "int4-g32") else 0.998)


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("int8-head-int8", "files of its own"),
        ("int8-kv-int8", "keys and values"),
        ("qat-int8", "predicts or writes"),
        ("llm-qat-int4-g32", "predicts or writes"),
    ],
)
def test_recipes_that_need_predictions_are_refused(
    recipe: str, told: str, source: Checkpoint
) -> None:
    with pytest.raises(UnsupportedError, match=told):
        check_recipe(source, recipe)


@pytest.mark.parametrize("recipe", ["magnitude-50", "wanda-50", "sparsegpt-2of4"])
def test_pruned_encoders_have_zeros_and_still_resemble_the_original(
    recipe: str, source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", recipe, calibration=calibration)
    assert made.sparsity is not None
    assert made.sparsity.share == pytest.approx(0.5, abs=0.01)
    cosine = torch.nn.functional.cosine_similarity(
        vector(Checkpoint.open(made.path)), vector(source), dim=0
    )
    assert cosine > 0.5


@pytest.mark.parametrize(
    "step",
    [CutNeurons(share=0.25), CutHeads(share=0.25), CutLayers(num=1)],
    ids=["neurons", "heads", "layers"],
)
def test_cut_encoders_are_smaller_and_whole(
    step: CutNeurons | CutHeads | CutLayers,
    source: Checkpoint,
    calibration: Calibration,
    tmp_path: Path,
) -> None:
    made = cut(source, tmp_path / "out", [step], calibration)
    written = Checkpoint.open(made.path)
    assert written.spec.num_parameters() < source.spec.num_parameters()
    assert written.spec.head == source.spec.head
    cosine = torch.nn.functional.cosine_similarity(vector(written), vector(source), dim=0)
    assert cosine > 0.5
    assert any("head_dim" in note for note in made.notes) == isinstance(step, CutHeads)


def test_compensation_brings_cut_heads_nearer(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    found = {}
    for name, compensation in (("with", CutNeurons(share=0.5).compensation), ("without", None)):
        step = CutNeurons(share=0.5, compensation=compensation)
        made = cut(source, tmp_path / name, [step], calibration)
        found[name] = float(
            torch.nn.functional.cosine_similarity(
                vector(Checkpoint.open(made.path)), vector(source), dim=0
            )
        )
    assert found["with"] > found["without"]


def test_scores_of_predictions_are_refused(source: Checkpoint, calibration: Calibration) -> None:
    with pytest.raises(UnsupportedError, match="gradients of predicted tokens"):
        cut(source, Path("out"), [CutNeurons(share=0.25, score="taylor")], calibration)
