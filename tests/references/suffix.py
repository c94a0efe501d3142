"""The slow, obvious lookup: every earlier place of the last tokens, found by looking everywhere."""

from collections import Counter

from paredown.kernels.suffix_index import SuffixIndex


def reference_find(texts, tail, *, min_match, max_match, max_places):
    """As below; where nothing is found, for what stands before the last token, behind the places
    that another token follows."""
    limits = {"min_match": min_match, "max_match": max_match, "max_places": max_places}
    found = reference_exact(texts, tail, **limits)
    if found is not None or not tail:
        return found
    found = reference_exact(texts, tail[:-1], changed=tail[-1], **limits)
    if found is None or found[0] < SuffixIndex.MIN_BEFORE_CHANGE:
        return None
    return found[0], [(number, position + 1) for number, position in found[1]]


def reference_exact(texts, tail, *, min_match, max_match, max_places, changed=None):
    """(length, places with the latest first) of the longest suffix of `tail`, among the latest
    `max_places` places (text number, position) of its last `min_match` tokens. `texts` are in the
    order in which they were added."""
    if len(tail) < min_match:
        return None
    run = tail[-min_match:]
    places = [
        (number, position)
        for number, text in enumerate(texts)
        for position in range(min_match, len(text))
        if text[position - min_match : position] == run
    ]
    places = [one for one in places[::-1][:max_places] if texts[one[0]][one[1]] != changed]
    if not places:
        return None

    def length(place):
        text, position = texts[place[0]], place[1]
        found = [
            n
            for n in range(1, min(max_match, len(tail), position) + 1)
            if text[position - n : position] == tail[-n:]
        ]
        return max(found)

    best = max(map(length, places))
    return best, [place for place in places if length(place) == best]


def reference_continuation(texts, places, max_tokens, *, own):
    """The most frequent next token again and again, of equally frequent ones the latest."""
    draft = []
    for _ in range(max_tokens):
        nexts = []
        for place in places:
            number, position = place
            text = texts[number] + (draft if number == own else [])
            if position + len(draft) < len(text):
                nexts.append((place, text[position + len(draft)]))
        if not nexts:
            break
        counts = Counter(token for _, token in nexts)
        token = next(one for _, one in nexts if counts[one] == max(counts.values()))
        places = [place for place, one in nexts if one == token]
        draft.append(token)
    return draft
