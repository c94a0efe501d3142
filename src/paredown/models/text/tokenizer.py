"""Tokenizer: text to token ids and back, and the chat template, on the `tokenizers` library."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import jinja2
import tokenizers

from paredown.errors import CheckpointError, RequestError
from paredown.models.files.json_file import read_optional_json_object
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.file import read_gguf
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.text.chat_template import compile_template
from paredown.models.text.token_texts import TokenTexts, piece_decoder

# What a template, which is a program from the checkpoint, can raise over messages it dislikes.
TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
# From so many characters on, which take 2 ms, a text is encoded without holding other threads up.
LONG_TEXT_CHARS = 4_000
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class Tokenizer:
    """`vocab_size` counts added tokens; `eos_token_ids` are all that may end a text; `add_bos` says
    whether the model was trained with `bos_token_id` before plain text. `token_texts` is None where
    tokens have no text of their own."""

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str],
        bos_token_id: int | None,
        add_bos: bool,
        eos_token_ids: frozenset[int],
        chat_template: jinja2.Template | None,
    ) -> None:
        self._library = library
        self._special_tokens = special_tokens
        self._chat_template = chat_template
        self.bos_token_id = bos_token_id
        self.add_bos = add_bos
        self.eos_token_ids = eos_token_ids
        self.vocab_size = library.get_vocab_size(with_added_tokens=True)
        self.token_texts = _token_texts(library)

    @classmethod
    def open(cls, path: Path) -> "Tokenizer":
        """Reads tokenizer.json and what stands about it in tokenizer_config.json,
        generation_config.json, config.json and chat_template.jinja, or a GGUF file's metadata.
        Raises CheckpointError, UnsupportedError for a GGUF file's tokenizer of an unknown kind."""
        if is_gguf(path):
            return cls._open_gguf(path)
        library = _read_library(path / "tokenizer.json")
        config = read_optional_json_object(path / "tokenizer_config.json")
        numbered = [
            read_optional_json_object(path / name)
            for name in ("generation_config.json", "config.json")
        ]
        source = chat_template_source(path, config)
        return cls._assemble(library, config, numbered, _compile(source, path))

    @classmethod
    def _open_gguf(cls, path: Path) -> "Tokenizer":
        files = hugging_face_files(read_gguf(path).metadata, str(path))
        library = _parse_library(files["tokenizer.json"].encode(), f"{path}: its tokenizer")
        config = json.loads(files["tokenizer_config.json"])
        numbered = [json.loads(files["generation_config.json"])]
        return cls._assemble(library, config, numbered, _compile(config.get("chat_template"), path))

    @classmethod
    def _assemble(
        cls,
        library: tokenizers.Tokenizer,
        config: Mapping[str, object],
        numbered: Sequence[Mapping[str, object]],
        chat_template: jinja2.Template | None,
    ) -> "Tokenizer":
        """`config` is tokenizer_config.json, `numbered` what may tell ids of special tokens."""
        special = {name: text for name in SPECIAL_TOKENS if (text := _token_text(config, name))}
        bos_ids = [*_ids(numbered, "bos_token_id"), *_known(library, special.get("bos_token"))]
        eos_ids = [*_ids(numbered, "eos_token_id"), *_known(library, special.get("eos_token"))]
        bos_token_id = bos_ids[0] if bos_ids else None
        return cls(
            library,
            special_tokens=special,
            bos_token_id=bos_token_id,
            add_bos=_adds_bos(library, config, bos_token_id),
            eos_token_ids=frozenset(eos_ids),
            chat_template=chat_template,
        )

    @property
    def prefix_token_id(self) -> int | None:
        """What stands before a text that is scored from its first token on: the bos_token that the
        tokenizer names, else its eos_token, else one that a config names."""
        for name in ("bos_token", "eos_token"):
            if known := _known(self._library, self._special_tokens.get(name)):
                return known[0]
        if self.bos_token_id is not None:
            return self.bos_token_id
        return min(self.eos_token_ids, default=None)

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    @property
    def vocabulary(self) -> dict[str, int]:
        """The ids of all tokens, added ones too; a new dict at each call."""
        entries: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        return entries

    def encode(self, text: str) -> list[int]:
        """Ids of `text` alone: no special tokens are put around it, but those written out in it
        are recognised. Raises RequestError for text that is not valid Unicode."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                "the text is not valid Unicode",
                seen=f"a lone surrogate at character {error.start}",
                remedy="Send whole characters.",
            ) from error
        if len(text) < LONG_TEXT_CHARS:
            encoding = self._library.encode(text, add_special_tokens=False)
        else:
            # The same ids, computed without Python's lock, in the library's own threads: a short
            # text would queue there behind the long ones.
            encoding = self._library.encode_batch_fast([text], add_special_tokens=False)[0]
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that make no character become U+FFFD."""
        text: str = self._library.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def render_chat(self, messages: list[dict[str, object]]) -> str:
        """The conversation as the model was trained to see it, up to where its answer starts.

        Raises RequestError when there is no template or the template refuses the messages.
        """
        if self._chat_template is None:
            raise RequestError(
                "this model has no chat template",
                seen=f"{len(messages)} messages",
                remedy="Send plain text to the completions instead.",
            )
        try:
            return self._chat_template.render(
                messages=messages, add_generation_prompt=True, **self._special_tokens
            )
        except TEMPLATE_ERRORS as error:
            raise RequestError(
                "the model's chat template refuses these messages",
                seen=str(error) or type(error).__name__,
                remedy="Send messages with the roles and the content that the model knows.",
            ) from error


def _read_library(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise CheckpointError(
            f"{path.parent} has no tokenizer.json",
            seen=", ".join(sorted(entry.name for entry in path.parent.glob("*"))) or "no files",
            remedy="Download tokenizer.json too, or save the tokenizer in its fast form.",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read", seen=error, remedy="Download the file again."
        ) from error
    return _parse_library(data, str(path))


def _parse_library(data: bytes, where: str) -> tokenizers.Tokenizer:
    """`data` is JSON in UTF-8: megabytes that as a text would be decoded and encoded again."""
    try:
        library = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(
            f"{where} cannot be read", seen=error, remedy="Download the file again."
        ) from error
    library.no_truncation()
    library.no_padding()
    return library


def _token_texts(library: tokenizers.Tokenizer) -> TokenTexts | None:
    if library.decoder is None:
        return None
    decoder = piece_decoder(library.decoder.__getstate__())
    if decoder is None:
        return None
    added = library.get_added_tokens_decoder().values()
    return TokenTexts(library, frozenset(one.content for one in added if one.special), decoder)


def _token_text(config: Mapping[str, object], name: str) -> str | None:
    """A special token's text; it stands there as such or in an object with its properties."""
    value = config.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _known(library: tokenizers.Tokenizer, token: str | None) -> list[int]:
    token_id = None if token is None else library.token_to_id(token)
    return [] if token_id is None else [token_id]


def _adds_bos(
    library: tokenizers.Tokenizer, config: Mapping[str, object], bos_token_id: int | None
) -> bool:
    """What `add_bos_token` says; where it is not given, what the post-processor does."""
    if bos_token_id is None:
        return False
    stated = config.get("add_bos_token")
    if isinstance(stated, bool):
        return stated
    return bool(library.encode("", add_special_tokens=True).ids[:1] == [bos_token_id])


def _ids(configs: Iterable[Mapping[str, object]], name: str) -> list[int]:
    """All ids that the configs name, the first config's first."""
    ids: list[int] = []
    for config in configs:
        value = config.get(name)
        values = value if isinstance(value, list) else [value]
        ids += [token_id for token_id in values if type(token_id) is int and token_id >= 0]
    return ids


def chat_template_source(folder: Path, config: Mapping[str, object]) -> object:
    """From chat_template.jinja, else from tokenizer_config.json: a text, or of several the one
    named "default"; None where there is none. Raises CheckpointError."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _bad_template(folder, error) from error
    source = config.get("chat_template")
    if not isinstance(source, list):
        return source
    try:
        return {entry["name"]: entry["template"] for entry in source}.get("default")
    except (LookupError, TypeError) as error:
        raise _bad_template(folder, error) from error


def _compile(source: object, where: Path) -> jinja2.Template | None:
    try:
        return None if source is None else compile_template(source)
    except TEMPLATE_ERRORS as error:
        raise _bad_template(where, error) from error


def _bad_template(where: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{where}: the chat template cannot be read",
        seen=str(error) or type(error).__name__,
        remedy="Download chat_template.jinja or tokenizer_config.json again.",
    )
