"""The slow, obvious engine: one request, its whole sequence computed anew for every token."""

from fakes.toy_executor import ToyTokenizer, reference_logits
from references.sampling import reference_draw, reference_logprobs, reference_probabilities


def plain_loop(prompt, params, *, vocab_size, max_total_tokens):
    """(generated tokens, text, finish reason, log-probabilities of the chosen tokens)."""
    tokenizer, token_ids, logprobs = ToyTokenizer(), list(prompt), []
    limit = min(max_total_tokens, len(prompt) + (params.max_tokens or max_total_tokens))
    generated, reason = [], "length"
    while len(token_ids) < limit:
        logits = reference_logits(token_ids, vocab_size)
        probabilities = reference_probabilities(
            logits, params, prompt=prompt, generated=generated, eos=tokenizer.eos_token_ids
        )
        token = reference_draw(probabilities, params.seed or 0, len(token_ids))
        logprobs.append(reference_logprobs(logits.tolist())[token])
        token_ids.append(token)
        generated.append(token)
        if token in tokenizer.eos_token_ids or token in params.stop_token_ids:
            return generated, tokenizer.decode(generated[:-1]), "stop", logprobs
        text = tokenizer.decode(generated)
        searched_from = len(tokenizer.decode(generated[: params.min_tokens]))
        cuts = [text.find(stop, searched_from) for stop in params.stop]
        if cuts := [cut for cut in cuts if cut >= 0]:
            return generated, text[: min(cuts)], "stop", logprobs
    return generated, tokenizer.decode(generated), reason, logprobs
