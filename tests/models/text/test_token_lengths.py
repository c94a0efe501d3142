"""How many bytes of a text a token stands for at most: no text has fewer tokens than that says."""

import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from drivers.shared_data import data_folder, needs_data
from fakes.small_tokenizers import byte_level, sentence_piece, write_folder
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

FORMS = {
    "NFC": normalizers.NFC(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Lowercase": normalizers.Lowercase(),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("K𝐀\u0300\u1fef  ab"))


def opened(folder: Path, library: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer.open(write_folder(folder, library))


def check(tokenizer: Tokenizer, text: str) -> None:
    most = tokenizer.max_token_bytes
    assert most is not None
    assert len(text.encode()) <= most * len(tokenizer.encode(text))


@pytest.fixture(scope="module", params=["bytes", "pieces", "default", *FORMS])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "default":
        return Tokenizer.open(resolve_model(None))
    library = sentence_piece() if request.param == "pieces" else byte_level()
    if request.param in FORMS:
        library.normalizer = FORMS[request.param]
    return opened(folder, library)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(TEXTS | TEXTS.map(lambda text: text * 50) | st.integers(1, 300).map(lambda num: " " * num))
def test_no_text_has_fewer_tokens(tokenizer, text):
    check(tokenizer, text)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_no_character_loses_more_to_a_normal_form(form):
    for code in range(0x110000):
        letter = chr(code)
        if unicodedata.category(letter) != "Cs":
            length = len(unicodedata.normalize(form, letter).encode())
            assert len(letter.encode()) <= 4 * length


def test_the_longest_token_counts_in_bytes(tmp_path):
    assert opened(tmp_path / "a", byte_level()).max_token_bytes == len("</s>")
    assert opened(tmp_path / "b", byte_level("é" * 10)).max_token_bytes == 20
    assert Tokenizer.open(resolve_model(None)).max_token_bytes == 16


def dropping(name: str) -> tokenizers.Tokenizer:
    library = byte_level()
    match name:
        case "strip":
            library.normalizer = normalizers.Strip()
        case "accents":
            library.normalizer = normalizers.Sequence(
                [normalizers.NFD(), normalizers.StripAccents()]
            )
        case "replace":
            library.normalizer = normalizers.Replace("a", "")
        case "pattern":
            library.normalizer = normalizers.Replace(tokenizers.Regex("a+"), "b")
        case "spaces":
            library.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()]
            )
        case "removed":
            library.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
            )
        case "added":
            library.add_tokens([AddedToken("<mask>", lstrip=True)])
        case "unknown":
            library = tokenizers.Tokenizer(models.BPE({"a": 0}, [], unk_token="a", fuse_unk=True))
            library.decoder = decoders.ByteLevel()
        case "words":
            library = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
            library.decoder = decoders.ByteLevel()
    return library


@pytest.mark.parametrize(
    "name",
    ["strip", "accents", "replace", "pattern", "spaces", "removed", "added", "unknown", "words"],
)
def test_where_a_text_may_lose_a_part_nothing_is_known(tmp_path, name):
    assert opened(tmp_path, dropping(name)).max_token_bytes is None


@needs_data("tokenizers/gguf-vocab")
@pytest.mark.parametrize("name", ["deepseek-coder", "gpt-2", "llama-spm", "phi-3"])
def test_files_of_known_models(name):
    folder = data_folder("tokenizers/gguf-vocab")
    assert folder is not None
    tokenizer = Tokenizer.open(folder / f"ggml-vocab-{name}.gguf")
    for text in ("a b", " " * 1000, "ab\n\n\t" * 99, "Ωé字😀" * 30):
        check(tokenizer, text)
