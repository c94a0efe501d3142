"""Writes draft tokens with a model, one step for each token."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paredown.executors.core_sampler import CoreSampler, own_states
from paredown.executors.protocol import SequenceSlice
from paredown.executors.sampler import NOT_FINITE, Logits, SamplingState
from paredown.spec.kv import PAGE_SIZE

Step = Callable[[list[SequenceSlice]], Logits]


def write_drafts(
    step: Step,
    sampler: CoreSampler,
    slices: list[SequenceSlice],
    states: list[SamplingState],
    num_draft_tokens: list[int],
) -> list[list[int]]:
    """See DraftingExecutor.write_drafts. Raises RuntimeError for logits that are not finite."""
    drafts: list[list[int]] = [[] for _ in slices]
    work = zip(slices, num_draft_tokens, strict=True)
    parts = [replace(part, num_logits=int(count > 0)) for part, count in work]
    writing = [i for i, count in enumerate(num_draft_tokens) if count > 0]
    try:
        logits_RV = step(parts)
        while writing:
            rows = sampler.sample(_fitted(logits_RV, states), [states[one] for one in writing])
            going = list[int]()
            for one, token_id, failure in zip(writing, rows.token_ids, rows.failures, strict=True):
                if failure is None:
                    drafts[one].append(token_id)
                    if len(drafts[one]) < num_draft_tokens[one]:
                        going.append(one)
            if NOT_FINITE in rows.failures:
                raise RuntimeError("the draft model failed: its logits are not finite")
            writing = going
            if writing:
                logits_RV = step([_next(slices[one], drafts[one]) for one in writing])
    finally:
        for state, draft in zip(states, drafts, strict=True):
            for _ in draft:
                state.pop()
    return drafts


def check_drafts(
    slices: list[SequenceSlice],
    states: list[SamplingState],
    num_draft_tokens: list[int],
    max_tokens: int,
) -> None:
    """Raises ValueError for drafts that cannot be written."""
    if not len(slices) == len(states) == len(num_draft_tokens):
        raise ValueError("there must be a state and a number of draft tokens for each slice")
    for part, count in zip(slices, num_draft_tokens, strict=True):
        if count < 0:
            raise ValueError("num_draft_tokens out of range")
        end = part.start + len(part.token_ids) + count - 1
        num_pages = len(part.pages) + part.num_released_pages
        if count > 0 and (end > max_tokens or num_pages * PAGE_SIZE < end):
            raise ValueError("a draft leaves its pages or the context")
    if len({id(state) for state in states}) < len(states):
        raise ValueError("two drafts have the same state")
    if len({state.vocab_size for state in own_states(states)}) > 1:
        raise ValueError("the states have different vocabularies")


def _next(part: SequenceSlice, draft: list[int]) -> SequenceSlice:
    start = part.start + len(part.token_ids) + len(draft) - 1
    return replace(part, token_ids=draft[-1:], start=start, num_logits=1)


def _fitted(logits_RV: Logits, states: list[SamplingState]) -> Logits:
    """Returns logits as wide as the states' vocabulary: models may pad the same tokenizer
    differently."""
    num_missing = own_states(states[:1])[0].vocab_size - logits_RV.shape[1]
    if num_missing > 0:
        return np.pad(logits_RV, ((0, 0), (0, num_missing)), constant_values=-np.inf)
    return np.ascontiguousarray(logits_RV[:, : logits_RV.shape[1] + num_missing])
