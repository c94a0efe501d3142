"""Log-probabilities in JSON."""

# What the OpenAI API writes for a token of probability 0; JSON has no minus infinity.
LOWEST_LOGPROB = -9999.0


def json_logprob(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)
