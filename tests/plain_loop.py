"""The slow, obvious engine: one request, its whole sequence computed anew for every token."""

from paredown.engine.sampling.sampler import sample_token
from sampling_reference import reference_logprobs
from toy_executor import ToyTokenizer, reference_logits


def plain_loop(prompt, params, *, vocab_size, max_total_tokens):
    """(generated tokens, text, finish reason, log-probabilities of the chosen tokens)."""
    tokenizer, token_ids, logprobs = ToyTokenizer(), list(prompt), []
    limit = min(max_total_tokens, len(prompt) + (params.max_tokens or max_total_tokens))
    generated, reason = [], "length"
    while len(token_ids) < limit:
        logits = reference_logits(token_ids, vocab_size)
        token = sample_token(logits, params, seed=params.seed, position=len(token_ids))
        logprobs.append(reference_logprobs(logits.tolist())[token])
        token_ids.append(token)
        generated.append(token)
        if token in tokenizer.eos_token_ids or token in params.stop_token_ids:
            return generated, tokenizer.decode(generated[:-1]), "stop", logprobs
        text = tokenizer.decode(generated)
        cuts = [text.find(stop) for stop in params.stop if stop in text]
        if cuts:
            return generated, text[: min(cuts)], "stop", logprobs
    return generated, tokenizer.decode(generated), reason, logprobs
