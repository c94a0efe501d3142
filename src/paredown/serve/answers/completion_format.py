"""CompletionFormat: a choice of POST /v1/completions, which looks the same in a whole reply and in
pieces."""

from collections.abc import Iterator, Sequence

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.placed_tokens import own_text
from paredown.serve.answers.echo import Echo, NamingDecoder
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LOWEST_LOGPROB, LogprobRows, LogprobToken
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.answers.usage import Body
from paredown.serve.answers.whole_answer import WholeAnswer

# Tokens of a prompt that one event of a stream tells.
PROMPT_TOKENS_PER_EVENT = 64
# The chosen token and the likeliest ones, with their log-probabilities.
Row = tuple[Sequence[int], Sequence[float]]


class CompletionFormat:
    """`echoes` has the prompts, where they are to be repeated, each for `num_choices` answers.
    `num_top` is how many of the likeliest tokens stand beside each token of an echoed prompt, and
    `num_prompt_top` how many the field `prompt_logprobs` has; None for neither."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(
        self,
        tokenizer: NamingDecoder | None = None,
        *,
        prompts: Sequence[list[int]] = (),
        echoes: Sequence[Echo] = (),
        num_choices: int = 1,
        num_top: int | None = None,
        num_prompt_top: int | None = None,
        tells_token_ids: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._echoes = echoes
        self._num_choices = num_choices
        self._num_top, self._num_prompt_top = num_top, num_prompt_top
        self._tells_token_ids = tells_token_ids
        # The answers of a stream whose prompt was told.
        self._told = set[int]()

    def opening(self, number: int) -> Body | None:
        return None

    def chunk_choices(self, piece: Piece) -> Iterator[Body]:
        number, echo = piece.number, self._echo(piece.number)
        is_first = number not in self._told
        self._told.add(number)
        if is_first and echo is not None:
            yield from self._prompt_chunks(piece, echo)
        entries = _entries(piece, 0 if echo is None else len(echo.text))
        body: Body = {
            "index": number,
            "text": piece.text,
            "logprobs": _columns(entries) if entries else None,
            "finish_reason": piece.finish_reason,
        }
        if self._tells_token_ids:
            prompt = {"prompt_token_ids": self._prompt(number)} if is_first else {}
            body |= {**prompt, "token_ids": piece.token_ids}
        yield body

    def _prompt_chunks(self, piece: Piece, echo: Echo) -> Iterator[Body]:
        """Yields an echoed prompt; with log-probabilities in parts that end between tokens."""
        if not echo.places:
            yield {
                "index": piece.number,
                "text": echo.text,
                "logprobs": None,
                "finish_reason": None,
            }
        entries = self._prompt_entries(piece, echo)
        for first in range(0, len(entries), PROMPT_TOKENS_PER_EVENT):
            part = entries[first : first + PROMPT_TOKENS_PER_EVENT]
            rest = entries[first + PROMPT_TOKENS_PER_EVENT :]
            end = rest[0].start if rest else len(echo.text)
            yield {
                "index": piece.number,
                "text": echo.text[part[0].start : end],
                "logprobs": _columns(part),
                "finish_reason": None,
            }

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]:
        echo = self._echo(answer.number)
        text = ("" if echo is None else echo.text) + answer.text
        yield to_json({"index": answer.number, "text": text})[:-1] + ',"logprobs":'
        if answer.logprobs or (echo is not None and echo.places):
            yield from self._columns_json(answer, echo, rows, parts)
        else:
            yield "null"
        yield f',"finish_reason":{to_json(answer.finish_reason)}'
        if self._num_prompt_top is not None:
            yield ',"prompt_logprobs":['
            for i, row in enumerate(_prompt_rows(answer.prompt_logprobs, self._num_prompt_top)):
                yield ("," if i else "") + ("null" if row is None else to_json(self._ranked(row)))
            yield "]"
        if self._tells_token_ids:
            yield f',"prompt_token_ids":{to_json(self._prompt(answer.number))}'
            yield f',"token_ids":{to_json(answer.token_ids)}'
        yield "}"

    def token_parts(self, text: str | bytes) -> Parts:
        return to_json(_name(text)) + ":", ""

    def _echo(self, number: int) -> Echo | None:
        return self._echoes[number // self._num_choices] if self._echoes else None

    def _prompt(self, number: int) -> list[int]:
        return self._prompts[number // self._num_choices]

    def _prompt_entries(self, piece: Piece, echo: Echo) -> list["_Entry"]:
        rows = _prompt_rows(piece.prompt_logprobs, self._num_top or 0)
        return [
            _Entry(_name(placed.text), *self._told_row(placed.text, row), placed.start)
            for placed, row in zip(echo.places, rows, strict=False)
        ]

    def _told_row(
        self, own: str | bytes, row: Row | None
    ) -> tuple[float | None, dict[str, float] | None]:
        """Returns the token's log-probability, and those of the likeliest and its own by their
        names."""
        if row is None:
            return None, None
        (chosen_id, *_), (chosen, *_) = row
        found: dict[str, float] = {}
        for token_id, logprob in _told_tokens(row):
            name = _name(own if token_id == chosen_id else self._own_text(token_id))
            found.setdefault(name, max(logprob, LOWEST_LOGPROB))
        return max(chosen, LOWEST_LOGPROB), found

    def _columns_json(
        self, answer: WholeAnswer, echo: Echo | None, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]:
        """Yields the JSON of `_columns` in pieces. Each list has an entry for every token."""
        places = () if echo is None else echo.places
        shift = 0 if echo is None else len(echo.text)
        names, starts = list[str](), list[int]()
        for placed in places:
            names.append(parts.write(placed.text)[0])
            starts.append(placed.start)
            yield ""  # a turn for others
        for i in range(len(answer.logprobs)):
            placed = rows.place(answer.logprobs.row(i)[0][0])
            names.append(parts.write(placed.text)[0])
            starts.append(placed.start + shift)
            yield ""

        def told() -> Iterator[Row | None]:
            if places:
                yield from _prompt_rows(answer.prompt_logprobs, self._num_top or 0)
            yield from map(answer.logprobs.row, range(len(answer.logprobs)))

        yield '{"tokens":['
        for i, name in enumerate(names):
            yield ("," if i else "") + name[:-1]
        yield '],"token_logprobs":['
        for i, row in enumerate(told()):
            logprob = "null" if row is None else repr(max(row[1][0], LOWEST_LOGPROB))
            yield ("," if i else "") + logprob
        yield '],"top_logprobs":['
        for i, row in enumerate(told()):
            yield ("," if i else "") + _by_name_json(row, names[i], parts)
        yield '],"text_offset":['
        for i, start in enumerate(starts):
            yield ("," if i else "") + str(start)
        yield "]}"

    def _ranked(self, row: Row) -> dict[str, Body]:
        """Returns a row by token ids, as vLLM has it. The rank of a token that is none of the
        likeliest is not known."""
        (chosen_id, *token_ids), (chosen, *logprobs) = row
        ranks = {token_id: rank for rank, token_id in enumerate(token_ids, 1)}
        pairs = {chosen_id: chosen, **dict(zip(token_ids, logprobs, strict=True))}
        return {
            str(token_id): {
                "logprob": max(logprob, LOWEST_LOGPROB),
                "rank": ranks.get(token_id),
                "decoded_token": _name(self._own_text(token_id)),
            }
            for token_id, logprob in pairs.items()
        }

    def _own_text(self, token_id: int) -> str | bytes:
        assert self._tokenizer is not None
        return own_text(self._tokenizer, token_id)


class _Entry:
    """One token as it is told; the log-probabilities are None for a text's first token."""

    __slots__ = ("logprob", "name", "start", "top")

    def __init__(
        self, name: str, logprob: float | None, top: dict[str, float] | None, start: int
    ) -> None:
        self.name, self.logprob, self.top, self.start = name, logprob, top, start


def _entries(piece: Piece, shift: int) -> list[_Entry]:
    """Returns the entries of the answer's own tokens, whose text begins at `shift`."""
    return [
        _Entry(
            _name(row.chosen.text),
            row.chosen.logprob,
            _by_name([*row.top, row.chosen]),
            row.start + shift,
        )
        for row in piece.logprobs
    ]


def _columns(entries: list[_Entry]) -> Body:
    """Returns the log-probabilities as OpenAI's API has them; `text_offset` counts the characters
    before each token."""
    return {
        "tokens": [one.name for one in entries],
        "token_logprobs": [one.logprob for one in entries],
        "top_logprobs": [one.top for one in entries],
        "text_offset": [one.start for one in entries],
    }


def _prompt_rows(logprobs: PackedLogprobs, num_top: int) -> Iterator[Row | None]:
    """Yields a row for each token of a prompt; nothing stands before the first."""
    yield None
    for index in range(len(logprobs)):
        token_ids, values = logprobs.row(index)
        yield token_ids[: 1 + num_top], values[: 1 + num_top]


def _told_tokens(row: Row) -> Iterator[tuple[int, float]]:
    """Yields the likeliest tokens with their log-probabilities, and the chosen one behind them: the
    OpenAI API always tells it, so that there may be one more than were asked for."""
    (chosen_id, *token_ids), (chosen, *logprobs) = row
    yield from zip(token_ids, logprobs, strict=True)
    yield chosen_id, chosen


def _by_name_json(row: Row | None, chosen: str, parts: TokenParts) -> str:
    """Returns the JSON of `_by_name`; the first token is the chosen one, whose name may differ at
    the beginning of a text."""
    if row is None:
        return "null"
    chosen_id = row[0][0]
    found = dict[str, float]()
    for token_id, logprob in _told_tokens(row):
        name = chosen if token_id == chosen_id else parts[token_id][0]
        found.setdefault(name, max(logprob, LOWEST_LOGPROB))
    return "{" + ",".join([f"{name}{logprob!r}" for name, logprob in found.items()]) + "}"


def _by_name(top: list[LogprobToken]) -> dict[str, float]:
    """Returns the best log-probability for each name; special tokens share the empty name."""
    found: dict[str, float] = {}
    for one in top:
        found.setdefault(_name(one.text), one.logprob)
    return found


def _name(text: str | bytes) -> str:
    """Returns the token's text, or its bytes in the OpenAI API's notation if it cuts a
    character."""
    if isinstance(text, str):
        return text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)
