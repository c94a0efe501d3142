"""The response cache against a plain list of answers, the one asked for longest ago first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.plan.response_cache import Identity, ResponseCache, ResponseCacheConfig
from paredown.plan.workload import SimulatedRequest


def asked(identity: Identity | None) -> SimulatedRequest:
    return SimulatedRequest(0.0, 16, 1, identity=identity)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60),
)
def test_the_answer_asked_for_longest_ago_goes_first(
    num_answers: int, events: list[tuple[bool, int]]
) -> None:
    """Each event asks for an answer or keeps one; both make it the last to go."""
    cache = ResponseCache(ResponseCacheConfig(num_answers=num_answers))
    kept: list[int] = []
    for keeps, number in events:
        if keeps:
            cache.keep((number,))
            kept = [*(one for one in kept if one != number), number][-num_answers:]
        else:
            assert cache.answers(asked((number,))) == (number in kept)
            if number in kept:
                kept = [*(one for one in kept if one != number), number]


def test_only_answers_to_known_questions_are_kept() -> None:
    cache = ResponseCache(ResponseCacheConfig(num_answers=3))
    assert cache.wants(asked((1, 2)))
    assert not cache.wants(asked(None))
    assert not cache.answers(asked(None))
    assert not ResponseCache(ResponseCacheConfig()).wants(asked((1, 2)))
    assert not ResponseCache(ResponseCacheConfig(hit_rate=0.5)).wants(asked((1, 2)))


@pytest.mark.parametrize("hit_rate", [0.0, 0.125, 0.75])
def test_a_hit_rate_is_the_share_of_hits_whatever_is_asked(hit_rate: float) -> None:
    cache = ResponseCache(ResponseCacheConfig(hit_rate=hit_rate), seed=3)
    hits = [cache.answers(asked(None)) for _ in range(10_000)]
    assert sum(hits) / len(hits) == pytest.approx(hit_rate, abs=0.02)
    again = ResponseCache(ResponseCacheConfig(hit_rate=hit_rate), seed=3)
    assert hits == [again.answers(asked((1,))) for _ in range(10_000)]


@pytest.mark.parametrize(
    "options", [{"hit_rate": 1.0}, {"num_answers": -1}, {"hit_rate": 0.1, "num_answers": 1}]
)
def test_senseless_caches(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ResponseCacheConfig(**options)  # type: ignore[arg-type]
