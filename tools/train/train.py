"""Train the default or the draft model; given again, the same command continues the run."""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tools.train.checkpoint import load_checkpoint, save_checkpoint
from tools.train.data import ChunkOrder
from tools.train.gradients import GradientWorkers
from tools.train.model import Decoder
from tools.train.optimizer import AdamSettings, Muon, MuonSettings, adamw
from tools.train.places import RUNS, token_file
from tools.train.schedule import ActiveClock, Plan
from tools.train.shapes import SHAPES


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that shapes a run except its budget of time."""

    batch_tokens: int = 16384
    clip_norm: float = 1.0
    seed: int = 1
    threads: int = 2
    save_seconds: float = 180.0
    plan: Plan = field(default_factory=Plan)
    muon: MuonSettings = field(default_factory=MuonSettings)
    adam: AdamSettings = field(default_factory=AdamSettings)


class Run:
    """A model in training: weights, optimizers, position in the data, active time."""

    def __init__(self, name: str, settings: RunSettings, budget: float) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.folder = RUNS / name
        self.model = Decoder(SHAPES[name])
        self.workers = GradientWorkers(self.model, settings.threads)
        self.muon = Muon(self.model.stacked_matrices(), settings.muon)
        self.adam = adamw(self.model.other_parameters(), settings.adam)
        tokens = np.load(token_file("train"), mmap_mode="r")
        self.order = ChunkOrder(tokens=tokens, seed=settings.seed)
        self.clock = ActiveClock(budget=budget)
        self.step = 0
        self.chunks = 0
        self.stop_asked = False

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "step": self.step,
            "chunks": self.chunks,
            "elapsed": self.clock.elapsed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step, self.chunks = state["step"], state["chunks"]
        self.clock.elapsed = state["elapsed"]

    def save(self) -> None:
        save_checkpoint(self.folder / "checkpoint.pt", self.state_dict())

    def train_step(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> str:
        """One optimizer step on target rows (count, length); returns the line for the log."""
        started = time.monotonic()
        factor = self.settings.plan.rate_factor(self.clock.progress, self.step)
        loss = self.workers.batch(rows)
        # The optimizer has the cores for itself.
        torch.set_num_threads(self.settings.threads)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.muon.step(factor)
        for group in self.adam.param_groups:
            group["lr"] = self.settings.adam.learning_rate * factor
        self.adam.step()
        seconds = time.monotonic() - started
        self.clock.add(seconds)
        self.step += 1
        return (
            f"step {self.step} loss {loss:.4f} norm {float(norm):.3f} rate {factor:.4f} "
            f"length {rows.shape[1]} tokens_per_s {rows.size / seconds:.0f} "
            f"progress {self.clock.progress:.4f}"
        )

    def train(self) -> None:
        """Train until the budget is used or a stop is asked for; saves every few minutes."""
        saved = time.monotonic()
        while self.clock.progress < 1.0 and not self.stop_asked:
            batch_tokens = self.settings.batch_tokens
            length = self.settings.plan.length(self.clock.progress)
            for rows in self.order.batches(self.chunks, batch_tokens, length):
                print(self.train_step(rows), flush=True)
            self.chunks += batch_tokens // length
            if time.monotonic() - saved > self.settings.save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()

    def ask_stop(self, *_: object) -> None:
        """Signal handler: stop at the end of the group of chunks in work."""
        self.stop_asked = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--hours", type=float, required=True, help="budget of active time, in all")
    parser.add_argument("--muon-rate", type=float, default=MuonSettings.learning_rate)
    parser.add_argument("--adam-rate", type=float, default=AdamSettings.learning_rate)
    parser.add_argument("--batch-tokens", type=int, default=RunSettings.batch_tokens)
    parser.add_argument("--threads", type=int, default=RunSettings.threads)
    args = parser.parse_args()
    settings = RunSettings(
        batch_tokens=args.batch_tokens,
        threads=args.threads,
        muon=MuonSettings(learning_rate=args.muon_rate),
        adam=AdamSettings(learning_rate=args.adam_rate),
    )
    run = Run(args.name, settings, args.hours * 3600.0)
    run.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = run.folder / "checkpoint.pt"
    if checkpoint.exists():
        run.load_state_dict(load_checkpoint(checkpoint))
        print(f"continuing at step {run.step}, {run.clock.progress:.1%} of the budget", flush=True)
    pid_file = run.folder / "train.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    signal.signal(signal.SIGTERM, run.ask_stop)
    signal.signal(signal.SIGINT, run.ask_stop)
    run.train()
    pid_file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
