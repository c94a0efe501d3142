"""The slow, obvious sampler: exact probabilities of every token, one token at a time."""

import math


def reference_probabilities(logits, *, temperature=1.0, top_k=None, top_p=1.0):
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return [1.0 if i == order[0] else 0.0 for i in range(len(logits))]
    weight = {i: math.exp((logits[i] - logits[order[0]]) / temperature) for i in order}
    kept = order[: top_k or len(order)]
    total = math.fsum(weight[i] for i in kept)
    nucleus, reached = [], 0.0
    for i in kept:
        if reached >= top_p * total:
            break
        nucleus.append(i)
        reached += weight[i]
    total = math.fsum(weight[i] for i in nucleus)
    return [weight[i] / total if i in set(nucleus) else 0.0 for i in range(len(logits))]


def reference_logprobs(logits):
    largest = max(logits)
    normalizer = largest + math.log(math.fsum(math.exp(x - largest) for x in logits))
    return [x - normalizer for x in logits]
