"""Tokenizer: text to token ids and back, and the chat template, on the `tokenizers` library."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from paredown.errors import CheckpointError, RequestError
from paredown.files.model_file import read_model_file
from paredown.models.chat.rendered_chat import TOOL_RESULTS, ControlTokens, RenderedChat
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.files.json_file import MAX_TOKENIZER_BYTES, read_optional_json_object
from paredown.models.files.whole_file import is_there, unreadable
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.parts import read_metadata
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.text.chat_templates import ChatTemplates
from paredown.models.text.clean_up import clean_up
from paredown.models.text.fill_in_middle import FillInMiddle
from paredown.models.text.instruction_template import instruction_template, is_encoder_decoder
from paredown.models.text.pair_form import PairForm
from paredown.models.text.token_lengths import max_token_bytes
from paredown.models.text.token_texts import TokenTexts, piece_decoder
from paredown.models.text.tokenizer_ends import (
    asked_ids_around,
    ids_around,
    known_ids,
    named_ids,
)
from paredown.models.text.tokenizer_files import (
    TokenizerFiles,
    add_tokens,
    named_files,
    read_tokenizer_files,
    tokenizer_file,
)
from paredown.models.text.tokenizer_library import LONG_TEXT_CHARS as LONG_TEXT_CHARS
from paredown.models.text.tokenizer_library import AddedToken, TokenizerLibrary


class Tokenizer:
    """Encodes and decodes text. `vocab_size` counts added tokens; each of `eos_token_ids` may end a
    text. `prompt_prefix` and `prompt_suffix` are the tokens that the model was trained to see
    around plain text. The decoder of an encoder-decoder begins with `decoder_start_token_id`, which
    is the token that pads texts where no other is named (T5). `cleans_up` says whether decoding
    drops spaces before punctuation. `token_texts` is None where tokens have no text of their
    own."""

    def __init__(
        self,
        library: TokenizerLibrary,
        files: TokenizerFiles,
        *,
        around: tuple[tuple[int, ...], tuple[int, ...]],
        numbered: Sequence[Mapping[str, object]],
        chat_templates: ChatTemplates,
    ) -> None:
        """Wraps a loaded library. `around` is (prompt_prefix, prompt_suffix). `numbered` may give
        ids of special tokens, with the first taking precedence: generation_config.json and
        config.json."""
        self._library = library
        self._special_tokens = files.special_tokens
        self.cleans_up = files.cleans_up(library.model_kind)
        self.chat_templates = chat_templates
        named = [
            known_ids(library, files.special_tokens.get(f"{end}_token")) for end in ("bos", "eos")
        ]
        bos_ids = [*named[0], *named_ids(numbered, "bos_token_id")]
        self.bos_token_id = bos_ids[0] if bos_ids else None
        starts = [
            *named_ids(numbered, "decoder_start_token_id"),
            *named_ids(numbered, "pad_token_id"),
        ]
        self.decoder_start_token_id = starts[0] if starts else None
        self.eos_token_ids = frozenset([*named_ids(numbered, "eos_token_id"), *named[1]])
        self.prompt_prefix, self.prompt_suffix = around
        self.vocab_size = library.vocab_size
        self.token_texts = None if self.cleans_up else _token_texts(library)
        # Whose control tokens are only text in a chat (models/chat/rendered_chat.py).
        self.text_of: Collection[str] = TOOL_RESULTS
        # Special tokens that decoding does not skip.
        self._shown: frozenset[int] = frozenset()

    @classmethod
    def open(cls, path: Path) -> "Tokenizer":
        """Reads tokenizer.json and the files beside it (models/text/tokenizer_files.py), ids of
        special tokens from generation_config.json and config.json, and the chat templates; or a
        GGUF file's metadata. Raises CheckpointError, and UnsupportedError for an unknown kind of
        tokenizer in a GGUF file."""
        if is_gguf(path):
            return cls._open_gguf(path)
        files = read_tokenizer_files(path)
        library = _read_library(tokenizer_file(path, files.config))
        add_tokens(library, files)
        numbered = [
            read_optional_json_object(path / name)
            for name in ("generation_config.json", "config.json")
        ]
        around = ids_around(library)
        templates = ChatTemplates.of_folder(path, files.config)
        if not templates and is_encoder_decoder(numbered[-1]):
            before, after = (map(library.id_to_token, ids) for ids in around)
            templates = ChatTemplates(
                instruction_template([*before], [*after]), str(path), reads_last_turn=True
            )
        return cls(library, files, around=around, numbered=numbered, chat_templates=templates)

    @classmethod
    def _open_gguf(cls, path: Path) -> "Tokenizer":
        found = hugging_face_files(read_metadata(path), str(path))
        library = TokenizerLibrary.parse(found["tokenizer.json"].encode(), f"{path}: its tokenizer")
        files = named_files(json.loads(found["tokenizer_config.json"]), str(path))
        return cls(
            library,
            files,
            around=asked_ids_around(library, files),
            numbered=[json.loads(found["generation_config.json"])],
            chat_templates=ChatTemplates(files.config.get("chat_template"), str(path)),
        )

    @property
    def add_bos(self) -> bool:
        """Returns whether the bos token precedes plain text."""
        return self.prompt_prefix[:1] == (self.bos_token_id,)

    @property
    def prefix_token_id(self) -> int | None:
        """Returns the token before a text that is scored from its first token on: the tokenizer's
        bos_token, else its eos_token, else one that a config names."""
        for name in ("bos_token", "eos_token"):
            if known := known_ids(self._library, self._special_tokens.get(name)):
                return known[0]
        if self.bos_token_id is not None:
            return self.bos_token_id
        return min(self.eos_token_ids, default=None)

    @property
    def eos_token_id(self) -> int | None:
        """Returns the token that ends a text in training: the tokenizer's eos_token, else the
        lowest of `eos_token_ids`."""
        if known := known_ids(self._library, self._special_tokens.get("eos_token")):
            return known[0]
        return min(self.eos_token_ids, default=None)

    @cached_property
    def max_token_bytes(self) -> int | None:
        """Returns the most bytes of text that a token stands for; None where unknown. The first
        call takes 0.1 s for the largest vocabularies."""
        return max_token_bytes(self._library, self.token_texts)

    @cached_property
    def pair_form(self) -> PairForm:
        """Returns what stands around and between two texts. Raises RequestError."""
        return PairForm.of_encoded(*self._library.encode_pair("a", "a"))

    @property
    def encodes_here(self) -> bool:
        """Returns whether this process encodes. Otherwise a thread waits for another process, even
        for short texts."""
        return self._library.encodes_here

    @cached_property
    def fill_in_middle(self) -> FillInMiddle | None:
        """Returns the tokens with which the model writes between two texts, or None."""
        return FillInMiddle.of(self._library.token_to_id)

    def token_string(self, token_id: int) -> str | None:
        """Returns a token as the vocabulary writes it, or None for an id without a token."""
        return self._library.id_to_token(token_id)

    @property
    def has_chat_template(self) -> bool:
        return bool(self.chat_templates)

    @property
    def reads_last_turn(self) -> bool:
        """Returns whether chats are rendered by our own template, which reads the system's messages
        and the user's last one alone (models/text/instruction_template.py)."""
        return self.chat_templates.reads_last_turn

    @property
    def vocabulary(self) -> dict[str, int]:
        """Returns the ids of all tokens, added ones too; a new dict at each call."""
        return self._library.vocabulary

    def to_json(self) -> str:
        """Returns a tokenizer.json that needs no files beside it."""
        text = self._library.to_json()
        if ids_around(self._library) == (self.prompt_prefix, self.prompt_suffix):
            return text
        around = self._post_processor()
        return json.dumps(json.loads(text) | {"post_processor": around}, ensure_ascii=False)

    def _post_processor(self) -> dict[str, object]:
        """Returns a post-processor, as JSON, that adds `prompt_prefix` and `prompt_suffix`."""

        def pieces(ids: Sequence[int]) -> list[dict[str, object]]:
            tokens = [self._library.id_to_token(token_id) for token_id in ids]
            return [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens]

        def parts(*names: str) -> list[dict[str, object]]:
            texts: list[dict[str, object]] = [
                {"Sequence": {"id": name, "type_id": 0}} for name in names
            ]
            return [*pieces(self.prompt_prefix), *texts, *pieces(self.prompt_suffix)]

        ids = {self._library.id_to_token(i): i for i in self.prompt_prefix + self.prompt_suffix}
        return {
            "type": "TemplateProcessing",
            "single": parts("A"),
            "pair": parts("A", "B"),
            "special_tokens": {
                token: {"id": token, "ids": [token_id], "tokens": [token]}
                for token, token_id in ids.items()
            },
        }

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text` without added special tokens; those written out in the text are
        recognised. Raises RequestError for text that is not valid Unicode."""
        self._check_unicode(text)
        return self._library.encode(text)

    def _check_unicode(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                "the text is not valid Unicode",
                seen=f"a lone surrogate at character {error.start}",
                remedy="Send whole characters.",
            ) from error

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of `ids`; bytes that form no character become U+FFFD."""
        text = self.decode_uncleaned(ids, skip_special_tokens)
        return clean_up(text) if self.cleans_up else text

    def decode_uncleaned(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of `decode` before `cleans_up` drops any spaces."""
        if skip_special_tokens and self._shown:
            ids = [one for one in ids if one in self._shown or one not in self._special_ids]
            skip_special_tokens = False
        return self._library.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def show(self, markers: Iterable[str]) -> None:
        """Makes decoding keep the special tokens that stand in `markers`, such as "[TOOL_CALLS]":
        what parses a turn must see them. Tokens that end a text stay hidden. Call it before the
        first text is decoded."""
        texts = tuple(markers)
        shown = {
            token_id: token.content
            for token_id, token in self._library.added_tokens.items()
            if token_id in self._special_ids - self.eos_token_ids
            and any(token.content in text for text in texts)
        }
        self._shown |= shown.keys()
        if self.token_texts is not None:
            self.token_texts.show(shown)

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        """Returns the tokens that decoding skips."""
        return frozenset(
            token_id
            for token_id, token in self._library.added_tokens.items()
            if _is_special(self._library, token_id, token)
        )

    @property
    def control_ids(self) -> dict[str, int]:
        """Returns the ids of control tokens by their texts: of special tokens, and of others that
        are written as tags."""
        added = self._library.added_tokens.items()
        texts = self._control_tokens.texts
        return {token.content: i for i, token in added if token.content in texts}

    def prepare_chat(self) -> None:
        """Starts the process that renders chats, without waiting for it."""
        self.chat_templates.start()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        opens_answer: bool = True,
        template_values: Mapping[str, object] | None = None,
    ) -> str:
        """Returns the conversation as the model was trained to see it, up to where its answer
        starts. With `opens_answer` false it ends with the last message. `tools` are functions as
        JSON schemas; with them, a template named "tool_use" is preferred. `template_values` are
        names for the template, of those in `template_value_names`.

        Raises RequestError when there is no template or the template refuses the messages,
        CheckpointError for a damaged template.
        """
        return self.chat_templates.render(
            messages,
            tools=tools,
            special_tokens=self._special_tokens,
            opens_answer=opens_answer,
            template_values=template_values,
        )

    def render_marked(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        text_of: Collection[str] | None = None,
        template_values: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        """Does what `render_chat` does, and keeps control tokens apart that clients wrote: in the
        turns of the roles `text_of` (default: the tokenizer's own), and in tools if "tools" is
        among them, they are only text. `encode_rendered` takes the result."""
        sources = self.text_of if text_of is None else text_of
        marked = self._control_tokens.mark(messages, tools, sources)
        text = self.render_chat(marked.messages, marked.tools, template_values=template_values)
        return RenderedChat(text=text, letters=marked.letters)

    def encode_rendered(self, chat: RenderedChat) -> list[int]:
        """Returns the ids of a rendered conversation. Without control tokens that are only text,
        they are those of `encode`. Raises RequestError for text that is not valid Unicode."""
        if not chat.letters:
            return self.encode(chat.text)
        self._check_unicode(chat.text)
        return self._library.encode_marked(chat.text, chat.letters)

    @cached_property
    def _control_tokens(self) -> ControlTokens:
        tokens = self._library.added_tokens.values()
        return ControlTokens.of((token.content, token.special) for token in tokens)

    @cached_property
    def template_value_names(self) -> frozenset[str]:
        """Returns the names that the chat template reads beside those of every chat, such as
        "enable_thinking". Raises what `render_chat` raises."""
        return self.chat_templates.value_names(self._special_tokens)

    @cached_property
    def turn_format(self) -> TurnFormat:
        """Returns how the model writes calls of tools and reasoning. The first call renders some
        short chats, 50 ms in all. Raises CheckpointError for a damaged template."""
        return TurnFormat.of(self.chat_templates, self._special_tokens)


def _read_library(path: Path) -> TokenizerLibrary:
    if not is_there(path):
        raise CheckpointError(
            f"{path.parent} has no tokenizer.json",
            seen=", ".join(sorted(entry.name for entry in path.parent.glob("*"))) or "no files",
            remedy="Download tokenizer.json too, or make it from the older files with Transformers "
            "(AutoTokenizer.from_pretrained, then save_pretrained).",
        )
    try:
        data = read_model_file(path, MAX_TOKENIZER_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
    return TokenizerLibrary.parse(data, str(path))


def _token_texts(library: TokenizerLibrary) -> TokenTexts | None:
    decoder = piece_decoder(library.decoder_description)
    if decoder is None:
        return None
    special = {
        token.content
        for token_id, token in library.added_tokens.items()
        if _is_special(library, token_id, token)
    }
    return TokenTexts(library, frozenset(special), decoder)


def _is_special(library: TokenizerLibrary, token_id: int, token: AddedToken) -> bool:
    """Returns whether decoding skips a token. The library keeps one special even if it is added
    again as ordinary."""
    return token.special or not library.decode([token_id], skip_special_tokens=True)
