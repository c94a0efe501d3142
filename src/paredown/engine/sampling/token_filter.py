"""Token filters, the hook for grammars: a request's function limits the tokens of each draw."""

import numpy as np
import numpy.typing as npt

from paredown.engine.sampling.sampling_params import TokenFilter


class TokenFilterError(Exception):
    """A token filter raised, returned no valid set of tokens, or allowed none at all."""


def allowed_tokens(
    token_filter: TokenFilter, generated: list[int], vocab_size: int
) -> npt.NDArray[np.int32] | None:
    """Returns the ids that may follow `generated`, or None for all. Raises TokenFilterError."""
    try:
        found = token_filter(generated)
        if found is None:
            return None
        array = np.asarray(found if isinstance(found, np.ndarray) else list(found))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code: any failure ends only its own request
        raise TokenFilterError(
            f"the token filter failed: {type(error).__name__}: {error}"
        ) from error
    if array.dtype == np.bool_ and array.shape == (vocab_size,):
        array = np.flatnonzero(array)
    if array.ndim == 1 and array.size == 0:
        raise TokenFilterError("the token filter allows no token")
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise TokenFilterError(
            f"the token filter gave {array.dtype} of shape {array.shape}, not token ids "
            f"or {vocab_size} booleans"
        )
    if array.min() < 0 or array.max() >= vocab_size:
        raise TokenFilterError("the token filter names a token id that the model does not have")
    return array.astype(np.int32)
