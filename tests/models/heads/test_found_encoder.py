"""What else a folder says: lengths, prompts, markers, labels; and which models have a head."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from fakes.sentence_folders import NORMALIZE, add_modules, pooling, write_json
from fakes.tiny_encoders import CLASSIFIERS, ENCODERS, MAX_POSITIONS, widened
from fakes.tiny_models import ROTARY_SIZES, VARIANTS
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.encoder_settings import AnswerScore, EncoderSettings, LateInteraction

SHARED = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ENCODERS["bert"](tmp_path)
    return tmp_path


def settings_of(folder: Path) -> EncoderSettings:
    found = Checkpoint.open(folder).encoder_settings
    assert found is not None
    return found


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, **changes})


def test_an_encoder_without_modules_takes_the_mean_and_says_so(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.spec.head is not None
    assert checkpoint.spec.head.pooling == ("mean",)
    assert any("mean" in note for note in checkpoint.notes)
    assert not checkpoint.spec.generates


def test_a_decoder_without_modules_has_no_head(tmp_path: Path) -> None:
    VARIANTS["qwen3"](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.spec.generates
    assert checkpoint.spec.head is None
    assert checkpoint.encoder_settings is None


@pytest.mark.parametrize("name", ["qwen3", "llama-tied"])
def test_a_decoder_with_modules_embeds_by_its_last_token(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 0)
    add_modules(tmp_path, [pooling("lasttoken"), NORMALIZE])
    if name == "qwen3":
        # Without its output layer, as embedders are published.
        tensors = load_file(tmp_path / "model.safetensors")
        del tensors["lm_head.weight"]
        save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.spec.generates == (name == "llama-tied")
    encoder = load_encoder(checkpoint, RunOptions(executor="torch"))
    text = TokenText(token_ids=[5, 7, 9, 1])
    last = encoder.encode([text], "tokens")[-1]
    assert np.allclose(encoder.encode([text])[0], last / np.linalg.norm(last), atol=1e-6)


def test_the_shortest_named_length_holds(folder: Path) -> None:
    assert settings_of(folder).max_tokens == MAX_POSITIONS
    write_json(folder / "tokenizer_config.json", {"model_max_length": 40})
    assert settings_of(folder).max_tokens == 40
    write_json(folder / TRANSFORMER, {"max_seq_length": 32, "do_lower_case": True})
    assert settings_of(folder).max_tokens == 32
    assert settings_of(folder).lowercases
    write_json(folder / TRANSFORMER, {"max_seq_length": 1000})
    assert settings_of(folder).max_tokens == MAX_POSITIONS
    write_json(folder / TRANSFORMER, {})
    write_json(folder / "tokenizer_config.json", {"model_max_length": 10**30})
    assert settings_of(folder).max_tokens == MAX_POSITIONS


def test_prompts_similarity_and_sizes(folder: Path) -> None:
    shared = {
        "prompts": {"query": "query: ", "document": None},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 32,
    }
    write_json(folder / SHARED, shared)
    change_config(folder, matryoshka_dimensions=[16, 32, 64])
    found = settings_of(folder)
    assert found.prompts == {"query": "query: ", "document": ""}
    assert (found.default_prompt, found.similarity, found.cut_size) == ("query", "dot", 32)
    assert found.dimensions == (16, 32, 64)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SHARED, {"prompts": ["a"]}, "prompts"),
        (SHARED, {"prompts": {}, "default_prompt_name": "query"}, "default_prompt_name"),
        (SHARED, {"similarity_fn_name": "hamming"}, "similarity_fn_name"),
        (SHARED, {"truncate_dim": 0}, "truncate_dim"),
        (TRANSFORMER, {"max_seq_length": 0}, "max_seq_length"),
        (TRANSFORMER, {"max_seq_length": "256"}, "max_seq_length"),
        ("modules.json", {}, "list"),
        ("modules.json", [], "modules"),
        ("modules.json", [{"type": "sentence_transformers.models.Pooling", "path": 1}], "path"),
    ],
)
def test_bad_files_are_named(folder: Path, name: str, value: object, words: str) -> None:
    write_json(folder / name, value)
    with pytest.raises(CheckpointError, match=words) as caught:
        Checkpoint.open(folder)
    assert name in str(caught.value)


def test_labels_and_activation_of_classifiers(tmp_path: Path) -> None:
    CLASSIFIERS["bert-one-label"](tmp_path)
    assert settings_of(tmp_path).activation == "sigmoid"
    change_config(tmp_path, sbert_ce_default_activation_function="torch.nn.modules.linear.Identity")
    assert settings_of(tmp_path).activation == "identity"
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    change_config(tmp_path, sentence_transformers=activation, id2label={"0": "relevant"})
    assert settings_of(tmp_path).activation == "sigmoid"
    assert settings_of(tmp_path).labels == ("relevant",)
    change_config(tmp_path, id2label={"1": "relevant"})
    with pytest.raises(CheckpointError, match="id2label"):
        Checkpoint.open(tmp_path)


def test_a_decoder_classifies_by_its_last_token(tmp_path: Path) -> None:
    config = Qwen3Config(**{**ROTARY_SIZES, "head_dim": 32, "pad_token_id": 0}, num_labels=3)
    theirs = widened(Qwen3ForSequenceClassification(config))
    theirs.save_pretrained(tmp_path)
    encoder = load_encoder(Checkpoint.open(tmp_path), RunOptions(executor="torch"))
    ids = [5, 9, 200, 31]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    assert np.allclose(encoder.encode([TokenText(token_ids=ids)])[0], expected, atol=2e-5)


def test_other_classes_are_refused(folder: Path) -> None:
    change_config(folder, architectures=["BertForTokenClassification"])
    with pytest.raises(UnsupportedError, match="BertForTokenClassification"):
        Checkpoint.open(folder)


def test_answers_of_a_decoder_as_scores(tmp_path: Path) -> None:
    VARIANTS["llama-tied"](tmp_path, torch.float32, 0)
    package = "sentence_transformers.cross_encoder.modules.logit_score"
    tokens = {"true_token_id": 7, "false_token_id": 8}
    add_modules(tmp_path, [(f"{package}.LogitScore", tokens, {})])
    found = settings_of(tmp_path)
    assert found.answer_score == AnswerScore(true_token_id=7, false_token_id=8)
    assert Checkpoint.open(tmp_path).spec.generates


def test_colbert_of_its_own_code(folder: Path) -> None:
    change_config(folder, architectures=["HF_ColBERT"])
    tensors = load_file(folder / "model.safetensors")
    weight = 0.15 * torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    save_file({**tensors, "linear.weight": weight}, folder / "model.safetensors")
    metadata = {"query_maxlen": 20, "doc_maxlen": 50, "attend_to_mask_tokens": True}
    write_json(folder / "artifact.metadata", metadata)
    checkpoint = Checkpoint.open(folder)
    encoder = load_encoder(checkpoint, RunOptions(executor="torch"))
    text = TokenText(token_ids=[2, 17, 80, 3])
    products = encoder.encode([text], "tokens") @ weight.numpy().T
    expected = products / np.linalg.norm(products, axis=1, keepdims=True)
    assert np.allclose(encoder.encode([text]), expected, atol=1e-5)
    late = settings_of(folder).late_interaction
    assert late is not None
    assert (late.query_marker, late.document_marker) == ("[unused0]", "[unused1]")
    assert (late.expansion_tokens, late.num_document_tokens) == (20, 50)
    assert late.sees_expansion


def test_late_interaction_of_a_multi_vector_encoder(folder: Path) -> None:
    mask = {"skiplist_words": [",", "."], "skiplist_tasks": ["query", "document"]}
    add_modules(folder, [("MultiVectorMask", mask, {})])
    expansion = {"strategy": "min", "length": 16, "attend": True, "token": "[MASK]"}
    write_json(folder / TRANSFORMER, {"document_length": 40, "query_expansion": expansion})
    assert settings_of(folder).late_interaction == LateInteraction(
        num_document_tokens=40,
        expansion_tokens=16,
        cuts_at_expansion=False,
        sees_expansion=True,
        expansion_token="[MASK]",
        skipped_words=(",", "."),
        skips_in_queries=True,
    )


def test_tokens_that_none_sees_change_no_other(folder: Path) -> None:
    encoder = load_encoder(Checkpoint.open(folder), RunOptions(executor="torch"))
    ids = [2, 17, 80, 3]
    alone = encoder.encode([TokenText(token_ids=ids)], "tokens")
    filled = encoder.encode([TokenText(token_ids=[*ids, 4, 4], num_unseen=2)], "tokens")
    seen = encoder.encode([TokenText(token_ids=[*ids, 4, 4])], "tokens")
    assert np.allclose(filled[:4], alone, atol=1e-6)
    assert not np.allclose(seen[:4], alone, atol=1e-2)
