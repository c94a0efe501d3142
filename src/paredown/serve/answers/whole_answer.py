"""WholeAnswer: all output of one job, packed until it is written."""

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.request_output import RequestOutput
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.turn import Turn
from paredown.serve.answers.turn_reader import TurnReader


class WholeAnswer:
    """`turn` is what the model said."""

    def __init__(self, number: int, reader: TurnReader) -> None:
        self.number = number
        self.turn = Turn()
        self.token_ids: list[int] = []
        self.logprobs = PackedLogprobs()
        # Those of all prompt tokens but the first.
        self.prompt_logprobs = PackedLogprobs()
        self.finish_reason: str | None = None
        # The stop string that ended the answer.
        self.stop: str | None = None
        self._reader = reader

    @property
    def text(self) -> str:
        """Returns the visible text."""
        return self.turn.content

    @property
    def num_chars(self) -> int:
        return self.turn.num_chars

    @property
    def num_logprobs(self) -> int:
        """Returns how many log-probabilities there are, those of the prompt among them."""
        return self.logprobs.num_tokens + self.prompt_logprobs.num_tokens

    def as_piece(self) -> Piece:
        """Returns the answer as if it had come in one piece, without log-probabilities."""
        piece = Piece(self.number)
        piece.events += self.turn.events()
        piece.finish_reason, piece.stop = self.finish_reason, self.stop
        return piece

    def add(self, output: RequestOutput) -> None:
        self.turn.add(self._reader.read(output))
        self.token_ids += output.token_ids
        if output.logprobs:
            self.logprobs.extend(output.logprobs)
        if output.prompt_logprobs:
            self.prompt_logprobs = PackedLogprobs.of(output.prompt_logprobs)
        self.finish_reason, self.stop = self._reader.finish_reason(output), output.stop
