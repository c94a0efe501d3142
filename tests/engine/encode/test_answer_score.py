"""Rerankers among decoders: the question in the template's words, and the logits of the answer."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library

from fakes.encoder_folders import write_decoder, write_settings
from paredown import Encoder
from paredown.errors import CheckpointError, RequestError

YES, NO = 7, 8
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}s {{ m.content }} {% endif %}{% endfor %}"
    "q {{ (messages | selectattr('role', 'eq', 'query') | first).content }} "
    "d {{ (messages | selectattr('role', 'eq', 'document') | first).content }} z?"
)


def write_reranker(folder: Path, **score: object):
    model = write_decoder(folder)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_LogitScore",
            "type": "sentence_transformers.cross_encoder.modules.LogitScore",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    config = {"true_token_id": YES, "false_token_id": NO} | score
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return model


def logits_after(model, folder: Path, text: str) -> np.ndarray:
    ids = Library.from_file(str(folder / "tokenizer.json")).encode(text, add_special_tokens=False)
    with torch.inference_mode():
        return model(torch.tensor([ids.ids])).logits[0, -1].numpy()


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_a_score_is_the_difference_of_two_logits(tmp_path, executor):
    model = write_reranker(tmp_path)
    reranker = Encoder(tmp_path, executor=executor, num_threads=1, activations="fp32")
    found = reranker.score("a b", ["c", "d e"]).scores
    expected = []
    for document in ("c", "d e"):
        logits = logits_after(model, tmp_path, f"q a b d {document} z?")
        expected.append(1 / (1 + np.exp(logits[NO] - logits[YES])))
    assert found == pytest.approx(expected, abs=1e-4)


def test_one_token_may_be_the_whole_answer(tmp_path):
    model = write_reranker(tmp_path, false_token_id=None)
    write_settings(
        tmp_path, "config_sentence_transformers", activation_fn="torch.nn.modules.linear.Identity"
    )
    reranker = Encoder(tmp_path, executor="torch", num_threads=1)
    logits = logits_after(model, tmp_path, "q a d b z?")
    assert reranker.score("a", "b").scores[0] == pytest.approx(logits[YES], abs=1e-4)


def test_the_default_prompt_is_the_system_message(tmp_path):
    model = write_reranker(tmp_path)
    write_settings(
        tmp_path,
        "config_sentence_transformers",
        prompts={"task": "x y"},
        default_prompt_name="task",
    )
    reranker = Encoder(tmp_path, executor="torch", num_threads=1)
    logits = logits_after(model, tmp_path, "s x y q a d b z?")
    expected = 1 / (1 + np.exp(logits[NO] - logits[YES]))
    assert reranker.score("a", "b").scores[0] == pytest.approx(expected, abs=1e-4)


def test_a_long_document_loses_its_end_and_keeps_what_follows_it(tmp_path):
    model = write_reranker(tmp_path)
    reranker = Encoder(tmp_path, executor="torch", num_threads=1)
    long = "b " * 100
    with pytest.raises(RequestError, match="longer than"):
        reranker.score("a", long)
    found = reranker.score("a", long, truncate="end")
    assert found.documents.num_tokens == (64,)
    assert found.documents.cut == (0,)
    logits = logits_after(model, tmp_path, "q a d " + "b " * 59 + "z?")
    expected = 1 / (1 + np.exp(logits[NO] - logits[YES]))
    assert found.scores[0] == pytest.approx(expected, abs=1e-4)


def test_a_template_without_these_roles_gives_way_to_words(tmp_path):
    write_reranker(tmp_path)
    template = "{% for m in messages %}{{ m.role }}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    write_settings(tmp_path, "config", max_position_embeddings=64)
    reranker = Encoder(tmp_path, executor="torch", num_threads=1)
    with pytest.raises(RequestError, match="longer than"):
        reranker.score("a", "b")


def test_tokens_that_the_output_layer_lacks_are_refused(tmp_path):
    write_reranker(tmp_path, true_token_id=10_000)
    with pytest.raises(CheckpointError, match="tokens"):
        Encoder(tmp_path, executor="torch", num_threads=1)
