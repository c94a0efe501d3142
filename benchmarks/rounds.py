"""Runs a case in rounds: everyone in turn, with the machine's limit measured in between."""

import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.cases import PEAK_UNITS, Case
from benchmarks.checkpoints.cache import Variant, gguf_file, paredown_folder
from benchmarks.figures import Limit, decode_bytes
from benchmarks.first_token import START_COMMANDS, StartError, seconds_to_first_byte
from benchmarks.peers import MACHINE, OURS, PEERS, Target
from benchmarks.peers.child import ChildPeer, PeerError
from benchmarks.peers.trials import try_settings
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint

# A case that takes long has fewer rounds, but never fewer than these.
MIN_ROUNDS = 3
# A peer that is this many times slower than the fastest, in the warm-up round and again after it,
# is no useful mark and is dropped.
MAX_PEER_RATIO = 3.0
# A turn that is over in half of this is repeated for about so long, and the first time does not
# count: it pays for threads that sleep, caches that others have filled, and cores that others still
# spin on.
TURN_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How often a case is run: `most` times, or fewer if they exceed `case_s` seconds, but at least
    MIN_ROUNDS where `most` allows."""

    most: int
    case_s: float

    def are_done(self, number: int, seconds: float) -> bool:
        """Returns whether to stop after round `number`, counted from 1, `seconds` after its
        start."""
        return number >= self.most or (number >= MIN_ROUNDS and seconds > self.case_s)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A case as measured, before any arithmetic. `seconds` has a value per round for each that ran,
    `failures` the reason for each that did not; `limits` are bytes or operations per
    second around our turn, one per round; `step_bytes` is what a decode step of ours reads,
    `num_linear_parameters` the weights that a token passes."""

    case: Case
    seconds: dict[str, list[float]]
    failures: dict[str, str]
    settings: dict[str, dict[str, str]]
    limits: list[Limit]
    step_bytes: int = 0
    num_linear_parameters: int = 0


@dataclass
class Children:
    """A process for each name, started when needed and again after a crash."""

    logs: Path
    targets: Mapping[str, Target] = field(default_factory=lambda: {**PEERS, "machine": MACHINE})
    timeout_s: float = 900.0
    _running: dict[str, ChildPeer] = field(default_factory=dict)

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._running.values():
            child.stop()

    def get(self, name: str) -> ChildPeer:
        """Returns the process for `name`, a key of the targets; "paredown kv-bf16" is another
        process of "paredown"."""
        child = self._running.get(name)
        if child is None or not child.is_alive:
            target = self.targets[name.split(" ")[0]]
            log = self.logs / f"{name.replace(' ', '-')}.log"
            child = ChildPeer(target, log, self.timeout_s)
            self._running[name] = child
        return child

    def close(self, name: str) -> None:
        """Frees the model of a live process, whether or not it took part in a case."""
        child = self._running.get(name)
        if child is not None and child.is_alive:
            with contextlib.suppress(PeerError):  # it ends with the process
                child.call("close")


def make_files(root: Path, variant: Variant, names: Sequence[str]) -> None:
    """Writes missing files before anything is timed."""
    paredown_folder(root, variant)
    if "llama.cpp" in names:
        gguf_file(root, variant)


def run_case(
    children: Children,
    root: Path,
    case: Case,
    names: Sequence[str],
    *,
    num_threads: int,
    rounds: Rounds,
) -> Run:
    """Measures `names` (ours among them) after a warm-up round."""
    names = list(names) if case.with_peers else [OURS]
    make_files(root, case.variant, names)
    if case.task == "start":
        return _run_starts(root, case, names, num_threads=num_threads, num_rounds=rounds.most)
    return _CaseRun(children, root, case, names, num_threads).run(rounds)


class _CaseRun:
    def __init__(
        self, children: Children, root: Path, case: Case, names: Sequence[str], num_threads: int
    ) -> None:
        self._children = children
        self._root = root
        self._case = case
        self._num_threads = num_threads
        self._kv_dtypes = dict.fromkeys(names, case.kv_dtype)
        if case.rival_kv_dtype is not None:
            self._kv_dtypes[f"{OURS} kv-{case.rival_kv_dtype}"] = case.rival_kv_dtype
        self._failures: dict[str, str] = {}
        self._limits: list[Limit] = []
        self._spec = Checkpoint.open(paredown_folder(root, case.variant)).spec
        self._prompts = case.prompts(self._spec.vocab_size)

    def run(self, rounds: Rounds) -> Run:
        for name, kv_dtype in self._kv_dtypes.items():
            options = self._case.load_options(self._num_threads, kv_dtype)
            self._call(name, "load", self._root, self._case.variant, options)
        step_bytes = self._step_bytes()
        seconds: dict[str, list[float]] = {name: [] for name in self._kv_dtypes}
        self._leave_out_slow(self._again_where_slow(self._round(0, step_bytes)))
        self._limits.clear()
        started = time.perf_counter()
        number = 0
        while not rounds.are_done(number, time.perf_counter() - started):
            number += 1
            for name, elapsed in self._round(number, step_bytes).items():
                seconds[name].append(elapsed)
        settings = {name: self._call(name, "settings") or {} for name in self._kv_dtypes}
        for name in self._kv_dtypes:
            self._children.close(name)
        return Run(
            case=self._case,
            seconds={name: found for name, found in seconds.items() if name not in self._failures},
            failures=self._failures,
            settings=settings,
            limits=self._limits,
            step_bytes=step_bytes,
            num_linear_parameters=self._spec.num_active_linear_parameters(),
        )

    def _round(self, number: int, step_bytes: int) -> dict[str, float]:
        """Seconds of those that ran. Another one begins each round, so that no one always follows
        the same; the machine's limit, where "machine" is a target, is measured right before and
        after our turn."""
        order = list(self._kv_dtypes)
        first = number % len(order)
        found: dict[str, float | None] = {}
        for name in order[first:] + order[:first]:
            if name != OURS or "machine" not in self._children.targets:
                found[name] = self._measure(name)
                continue
            before = self._limit_readings(step_bytes)
            found[name] = self._measure(name)
            self._limits.append(Limit.of([*before, *self._limit_readings(step_bytes)]))
        return {name: elapsed for name, elapsed in found.items() if elapsed is not None}

    def _again_where_slow(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Repeats the turn of slow peers, because the first may be an engine's first work with a
        model; returns the peers' seconds."""
        peers = {name: elapsed for name, elapsed in seconds.items() if name.split(" ")[0] != OURS}
        had_another = set[str]()
        while slow := _slow_peers(peers) - had_another:
            had_another |= slow
            for name in slow:
                again = self._measure(name)
                if again is None:
                    del peers[name]
                else:
                    peers[name] = min(peers[name], again)
        return peers

    def _leave_out_slow(self, peers: Mapping[str, float]) -> None:
        for name in _slow_peers(peers):
            rate = self._case.tokens_per_run / peers[name]
            ratio = peers[name] / min(peers.values())
            self._failures[name] = (
                f"{rate:.1f} tokens/s in the better of two turns before the first round, where "
                f"the fastest peer was {ratio:.1f} times as fast"
            )

    def _measure(self, name: str) -> float | None:
        first = self._run_once(name)
        if first is None or first > TURN_S / 2:
            return first
        again = [self._run_once(name) for _ in range(int(TURN_S / first))]
        seconds = [elapsed for elapsed in again if elapsed is not None]
        return statistics.median(seconds) if len(seconds) == len(again) else None

    def _run_once(self, name: str) -> float | None:
        if self._case.task == "prefill":
            found = self._call(name, "prefill", self._prompts[0])
        else:
            found = self._call(name, "decode", self._prompts, self._case.num_steps)
        assert found is None or isinstance(found, float)
        return found

    def _limit_readings(self, step_bytes: int) -> list[float]:
        machine = self._children.get("machine")
        if self._case.task == "prefill":
            unit = PEAK_UNITS[self._case.variant.format]
            found = machine.call("peak", self._num_threads, unit)
        else:
            found = machine.call("bandwidth", self._num_threads, max(step_bytes, 1 << 20))
        assert isinstance(found, list)
        return found

    def _step_bytes(self) -> int:
        weight_bytes = self._call(OURS, "weight_bytes")
        kv_token_bytes = self._call(OURS, "kv_token_bytes")
        if self._case.task != "decode" or OURS in self._failures:
            return 0
        return decode_bytes(
            weight_bytes=weight_bytes,
            kv_token_bytes=kv_token_bytes,
            prompt_tokens=self._case.prompt_tokens,
            num_steps=self._case.num_steps,
            num_sequences=self._case.num_sequences,
        )

    def _call(self, name: str, method: str, *arguments: object) -> Any:
        """Calls a model's method; returns None for a model that has failed, whose first failure is
        kept."""
        if name in self._failures:
            return None
        try:
            return self._children.get(name).call(method, *arguments)
        except PeerError as error:
            self._failures[name] = str(error)
            return None


def _slow_peers(seconds: Mapping[str, float]) -> set[str]:
    return {
        name
        for name, elapsed in seconds.items()
        if elapsed > MAX_PEER_RATIO * min(seconds.values())
    }


def _run_starts(
    root: Path, case: Case, names: Sequence[str], *, num_threads: int, num_rounds: int
) -> Run:
    commands: dict[str, list[str]] = {}
    settings: dict[str, dict[str, str]] = {}
    failures = {}
    for name in names:
        if name not in START_COMMANDS:
            failures[name] = "its start is not measured"
            continue
        try:
            choices = START_COMMANDS[name](root, case.variant, num_threads)
            fastest = _fastest_start(choices)
        except (StartError, UnsupportedError) as error:
            failures[name] = str(error)
            continue
        commands[name], settings[name] = choices[fastest], {"start": fastest}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(num_rounds):
        order = list(seconds)
        first = number % max(len(order), 1)
        for name in order[first:] + order[:first]:
            try:
                seconds[name].append(seconds_to_first_byte(commands[name]))
            except StartError as error:
                failures[name] = str(error)
                del seconds[name]
    return Run(case=case, seconds=seconds, failures=failures, settings=settings, limits=[])


def _fastest_start(choices: Mapping[str, list[str]]) -> str:
    """Returns the name of the fastest start, once the files are in the page cache."""
    for command in choices.values():
        seconds_to_first_byte(command)
    found = try_settings(list(choices), lambda name: seconds_to_first_byte(choices[name]))
    return min(found, key=lambda name: found[name])
