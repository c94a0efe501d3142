"""Fake peers for tests of the benchmark: one that answers, and others that fail in different
ways."""

import os
import time


class FakePeer:
    """Takes a hundredth of a second for everything."""

    def info(self):
        return {"pid": os.getpid()}

    def load(self, root, variant, options):
        self.variant = variant

    def prefill(self, token_ids):
        return 0.01

    def decode(self, prompts, num_steps):
        return 0.01

    def settings(self):
        return {"model": self.variant.model}

    def close(self):
        self.variant = None

    def is_closed(self):
        return self.variant is None


class FivefoldPeer(FakePeer):
    def prefill(self, token_ids):
        return 0.05


class SteadyPeer(FakePeer):
    def prefill(self, token_ids):
        return 0.2


class ColdPeer(FakePeer):
    """Takes long for its first work with a model."""

    num_calls = 0

    def prefill(self, token_ids):
        self.num_calls += 1
        return 2.0 if self.num_calls == 1 else 0.2


class WakingPeer(FakePeer):
    """Takes three calls per turn, the first of which is the slowest."""

    num_calls = 0

    def prefill(self, token_ids):
        self.num_calls += 1
        return (0.03, 0.1, 0.01)[self.num_calls % 3]


class CrashingPeer(FakePeer):
    def prefill(self, token_ids):
        print("about to crash", flush=True)
        os._exit(7)


class RaisingPeer(FakePeer):
    def load(self, root, variant, options):
        raise ValueError("not this model")


class SlowPeer(FakePeer):
    def prefill(self, token_ids):
        time.sleep(60)


class MissingPeer:
    def __init__(self):
        import a_package_that_is_not_there  # noqa: F401
