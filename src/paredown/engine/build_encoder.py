"""Builds an encoder from a checkpoint. Everything that encodes uses this one function."""

from dataclasses import dataclass

from paredown.engine.encode.encoder_model import EncoderModel, as_encoder, encoder_model
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class BuiltEncoder:
    """An encoder's weights, and what has to be known to prepare texts for it."""

    executor: EncoderExecutor
    model: EncoderModel


def build_encoder(
    checkpoint: Checkpoint, options: RunOptions, *, cuts_anywhere: bool = False
) -> BuiltEncoder:
    """Loads a checkpoint as an encoder; a decoder whose files name no head gives the vector of a
    text's last token. Raises what `load_encoder` raises."""
    tokenizer = Tokenizer.open(checkpoint.path)
    model = encoder_model(checkpoint, tokenizer, cuts_anywhere=cuts_anywhere)
    return BuiltEncoder(executor=load_encoder(as_encoder(checkpoint), options), model=model)
