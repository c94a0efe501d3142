"""Followers: requests that wait for another request's prompt and continue from it."""

from collections.abc import Iterable, Sequence

from paredown.engine.request import Request


class Followers:
    """Requests for the same prompt as another, their leader, which waits or runs like any other.
    Followers are in no queue until the leader has computed the prompt."""

    def __init__(self) -> None:
        self.num_following = 0

    def add(self, leader: Request, followers: Sequence[Request]) -> None:
        leader.followers = tuple(followers)
        self.num_following += len(followers)
        for one in followers:
            one.leader = leader

    def take(self, leader: Request) -> Sequence[Request]:
        """Removes and returns the followers of `leader`."""
        followers, leader.followers = leader.followers, ()
        self.num_following -= len(followers)
        for one in followers:
            one.leader = None
        return followers

    def remove(self, follower: Request) -> None:
        leader = follower.leader
        assert leader is not None
        leader.followers = tuple(one for one in leader.followers if one is not follower)
        follower.leader = None
        self.num_following -= 1

    def are_promised(self, request: Request, running: Sequence[Request], num_left: int) -> bool:
        """Whether the places that are left will be those of followers of a better rank."""
        if not self.num_following or num_left <= 0:
            return False
        rank = request.rank, request.id
        better = [one for one in running if (one.rank, one.id) < rank]
        seen = [one for one in better if request.is_wide or not one.is_wide]
        return sum(len(one.followers) for one in seen) >= num_left

    def check_integrity(self, leaders: Iterable[Request]) -> list[Request]:
        """Asserts that each follower has one of these leaders; returns all followers."""
        followers = list[Request]()
        for leader in leaders:
            assert leader.leader is None
            assert not (leader.followers and leader.num_generated_tokens)
            for one in leader.followers:
                assert one.leader is leader
                assert not one.followers
                assert not one.pages
                assert one.token_ids == leader.token_ids
            followers += leader.followers
        assert len(followers) == self.num_following
        return followers
