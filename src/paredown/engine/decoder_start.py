"""Prompts that an encoder reads: the token with which the decoder begins in their place."""

from typing import Protocol

from paredown.errors import CheckpointError, RequestError


class StartTokenizer(Protocol):
    """The part of a tokenizer that knows the token."""

    @property
    def decoder_start_token_id(self) -> int | None: ...


def decoder_start(tokenizer: StartTokenizer, vocab_size: int) -> int:
    """Returns the token. Raises CheckpointError where the model's files name none that it has."""
    token_id = tokenizer.decoder_start_token_id
    if token_id is None or not 0 <= token_id < vocab_size:
        raise CheckpointError(
            "the files do not say with which token the decoder begins",
            seen=f"decoder_start_token_id {token_id}, a vocabulary of {vocab_size}",
            remedy="Add decoder_start_token_id to generation_config.json (0 for T5), or download "
            "the checkpoint again.",
        )
    return token_id


def check_unscored(prompt_logprobs: int | None) -> None:
    """Raises RequestError for a request to score such a prompt."""
    if prompt_logprobs is not None:
        raise RequestError(
            "an encoder reads its prompt as a whole, which has no log-probabilities",
            seen=f"prompt_logprobs {prompt_logprobs}",
            remedy="Leave prompt_logprobs out.",
        )
