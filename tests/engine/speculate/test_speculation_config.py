"""What is not valid is refused when it is asked for, with the value and the remedy."""

import json
import shutil

import pytest

from paredown.engine.llm import LLM
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.errors import CheckpointError, ConfigError
from paredown.models.resolve import resolve_model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "medusa"}, "unknown kind of speculation"),
        ({"kind": "ngram", "max_draft_tokens": 0}, "max_draft_tokens is out of range"),
        ({"kind": "ngram", "max_draft_tokens": -1}, "max_draft_tokens"),
        ({"kind": "ngram", "max_draft_tokens": 65}, "Use 1 to 64"),
        ({"kind": "ngram", "max_draft_tokens": True}, "max_draft_tokens"),
        ({"kind": "ngram", "max_draft_tokens": 2.0}, "max_draft_tokens"),
        ({"kind": "ngram", "min_match": 0}, "min_match"),
        ({"kind": "suffix", "max_cached_tokens": 0}, "max_cached_tokens"),
        ({"kind": "reference"}, "no reference"),
        ({"kind": "ngram", "references": ("text",)}, "references belongs to"),
        ({"kind": "ngram", "draft_model": "draft"}, "draft_model belongs to"),
    ],
)
def test_a_senseless_configuration_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SpeculationConfig(**options)


def test_drafts_longer_than_the_context_are_refused():
    SpeculationConfig(kind="ngram", max_draft_tokens=8).check_context(9)
    with pytest.raises(ConfigError, match="max_draft_tokens 8, a context of 8"):
        SpeculationConfig(kind="ngram", max_draft_tokens=8).check_context(8)


def test_a_reference_with_a_token_that_the_model_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="saw: 8192"):
        LLM(speculation=SpeculationConfig(kind="reference", references=((5, 8192),)))


def test_a_draft_model_that_is_not_there_is_refused():
    with pytest.raises(CheckpointError, match="nowhere"):
        LLM(speculation=SpeculationConfig(kind="draft", draft_model="nowhere"))


def test_a_draft_model_with_another_vocabulary_is_refused(tmp_path):
    """Of the same size, so that only the tokens tell."""
    folder = tmp_path / "other"
    shutil.copytree(resolve_model("draft"), folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[5000:5002]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="another vocabulary"):
        LLM(speculation=SpeculationConfig(kind="draft", draft_model=folder))
