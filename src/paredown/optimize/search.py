"""The search: candidates follow from earlier measurements and lie near the bounds.

It first rounds to nearest in a few formats. These show how much perplexity a nat of KL divergence
costs this model, and how much longer a step takes with inputs of two codes. It then measures the
loss of each part (optimize/ladder.py).

After that it makes mixes of formats by one method after another, each at the loss or cost that the
measurements so far allow. From each mix it learns the method's gain: its loss over the sum of the
parts' losses when rounded to nearest. The search ends when the next mix would be as good as a
measured one, within the noise of timing. Where pruning is asked for, candidates that remove weights
follow (optimize/pruned_candidates.py).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paredown.compress.changed_recipe import with_inputs
from paredown.compress.group_sizes import ANY_GROUPS, groups_name
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.steps import EMBEDDING, OUTPUT
from paredown.evaluate.texts.text import EvalText
from paredown.models.roles import linear_places
from paredown.optimize.aim import Aim, Mixes
from paredown.optimize.candidates import (
    Candidates,
    SearchSetup,
    Skipped,
    measure_candidates,
    measure_losses,
)
from paredown.optimize.deadline import Deadline, OutOfTimeError
from paredown.optimize.ladder import (
    FINE,
    Mix,
    Rung,
    frontier,
    make_ladder,
    mix_recipe,
    mix_words,
    probed_specs,
    search_parts,
)
from paredown.optimize.model_parts import Part
from paredown.optimize.output_share import MIN_OUTPUT_SHARE, OUTPUT_FORMAT, output_share
from paredown.optimize.pruned_candidates import pruned_recipes
from paredown.optimize.text_choice import TextChoice, compare_texts
from paredown.optimize.trained_candidates import trained_recipes
from paredown.progress import OnProgress
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

# Rounded to nearest, from large to small; the second is the first with inputs of two codes.
WIDE = "int8"
FIRST = (WIDE, f"int4{groups_name(ANY_GROUPS)}")
# A format with faster prefill.
FAST_PROMPTS = "w8a8"
# The expected loss of a method relative to rounding to nearest, until it is measured.
_EXPECTED_GAIN = {"rtn": 1.0, "gptq": 0.6, "awq-gptq": 0.55}
# The methods that make mixes, one after another; each uses the results before it.
_ROUNDS = ("gptq", "gptq", "awq-gptq", "gptq")
# AWQ takes four times as long as GPTQ and helps where codes are few; at 6 and 8 bits it loses more
# (docs/log.md).
_MOST_AWQ_BITS = 5.5
# The passes over the calibration text, including the cost of Hessians beside their products.
_CALIBRATION_PASSES = 3.0
# The shares of the work, for progress.
_FIRST_SHARE, _PARTS_SHARE = 0.2, 0.4


@dataclass
class SearchNotes:
    """The decisions of the search: mixes by candidate, the effect of another calibration text, and
    what was `not_tried` and why."""

    mixes: dict[str, str] = field(default_factory=dict)
    text_choice: TextChoice | None = None
    not_tried: list[Skipped] = field(default_factory=list)
    stopped: str | None = None
    exit_code: int | None = None


def search(
    setup: SearchSetup,
    text: EvalText,
    deadline: Deadline,
    found: Candidates,
    notes: SearchNotes,
    on_progress: OnProgress,
) -> None:
    """Adds candidates to `found` until nothing new is worth trying or the time is over. Parts are
    measured on `text`."""
    _Search(setup, text, deadline, found, notes, on_progress).run()


class _Search:
    def __init__(
        self,
        setup: SearchSetup,
        text: EvalText,
        deadline: Deadline,
        found: Candidates,
        notes: SearchNotes,
        on_progress: OnProgress,
    ) -> None:
        self._setup = setup
        self._text = text
        self._deadline = deadline
        self._found = found
        self._notes = notes
        self._on_progress = on_progress
        self._gains = dict(_EXPECTED_GAIN)
        self._seconds: dict[str, float] = {}
        self._tried: set[tuple[str, str]] = set()
        self._made: dict[str, Mix] = {}
        self._aim = Aim(
            bounds=setup.bounds, found=found, made=self._made, table_bytes=self._table_bytes()
        )

    def run(self) -> None:
        self._timed("rtn", self._first(), 0.0, _FIRST_SHARE)
        if not self._found.measurements:
            return
        mixes = self._mixes()
        if mixes is not None and self._make_mixes(mixes):
            self._compare_texts()
        setup = self._setup
        if setup.prune:
            recipes = pruned_recipes(setup.source.spec, self._tables(), setup.recover)
            self._make_beside("pruned", recipes)
        if setup.train_minutes is not None:
            self._make_beside("trained", trained_recipes(self._tables(), setup.train_minutes))

    def _make_mixes(self, mixes: Mixes) -> bool:
        """Makes mixes by each method in turn. Returns false where one took longer than expected."""
        # If the time allows nothing else, rounding to nearest remains.
        rounds = list(_ROUNDS)
        if not self._deadline.allows(self._estimated_s(rounds[0])):
            rounds.insert(0, "rtn")
        ends = [
            _PARTS_SHARE + (1 - _PARTS_SHARE) * at / len(rounds) for at in range(len(rounds) + 1)
        ]
        for number, method in enumerate(rounds):
            mix = self._aim.mix(mixes, self._gains[method])
            recipe = self._named(mix_recipe(mix, self._setup.source, method))
            if not recipe.steps or not self._is_worth(method, mix, recipe.name):
                continue
            estimated = self._estimated_s(method)
            if not self._deadline.allows(estimated):
                reason = f"about {estimated:.0f} s more, of {max(self._deadline.left_s, 0):.0f} s"
                self._notes.not_tried.append(Skipped(name=recipe.name, reason=reason))
                continue
            try:
                self._timed(method, [recipe], ends[number], ends[number + 1])
            except OutOfTimeError:
                reason = f"it took more than the {estimated:.0f} s that were expected"
                self._notes.not_tried.append(Skipped(name=recipe.name, reason=reason))
                return False
            self._learn(method, mix, recipe)
        return True

    def _make_beside(self, kind: str, recipes: Sequence[Recipe]) -> None:
        """Measures those of other candidates than mixes that the time allows."""
        for recipe in recipes:
            steps = [*recipe.recover_steps, recipe.train_step]
            training_s = sum(60 * (step.minutes or 0) for step in steps if step is not None)
            estimated = self._estimated_s("gptq") * len(recipe.stages) + training_s
            if not self._deadline.allows(estimated):
                reason = f"about {estimated:.0f} s more, of {max(self._deadline.left_s, 0):.0f} s"
                self._notes.not_tried.append(Skipped(name=recipe.name, reason=reason))
                continue
            try:
                self._timed(kind, [recipe], 1.0, 1.0)
            except OutOfTimeError:
                reason = f"it took more than the {estimated:.0f} s that were expected"
                self._notes.not_tried.append(Skipped(name=recipe.name, reason=reason))

    def _compare_texts(self) -> None:
        """Calibrates the last mix on one text alone, if there are several and the time allows
        it."""
        measured = {one.name for one in self._found.measurements}
        calibrated = [
            name
            for name in self._made
            if name in measured and self._found.recipes[name].needs_calibration
        ]
        one_text = self._setup.one_text
        if not calibrated or one_text is None:
            return
        name = f"{calibrated[-1]} on one text"
        if not self._deadline.allows(self._seconds.get("gptq", 0.0)):
            self._notes.not_tried.append(Skipped(name=name, reason="the time is over"))
            return

        def report(what: str, share: float) -> None:
            self._on_progress(f"on one text: {what}", 1.0)
            self._deadline.check()

        try:
            self._notes.text_choice = compare_texts(
                self._setup, self._found, calibrated[-1], one_text(), report
            )
        except OutOfTimeError:
            reason = "it took longer than the time allowed"
            self._notes.not_tried.append(Skipped(name=name, reason=reason))

    def _first(self) -> list[Recipe]:
        recipes = [find_recipe(f"{name}{self._tables()}") for name in FIRST]
        recipes.insert(1, with_inputs(recipes[0], FINE))
        if self._setup.bounds.max_first_token_s is not None:
            recipes.append(find_recipe(f"{FAST_PROMPTS}{self._tables()}"))
        return recipes

    def _named(self, recipe: Recipe) -> Recipe:
        """Gives the recipe a name that no other candidate has: mixes may read the same number of
        bits."""
        number = sum(name.startswith(recipe.name) for name in self._made)
        return replace(recipe, name=f"{recipe.name}-{number + 1}") if number else recipe

    def _is_worth(self, method: str, mix: Mix, name: str) -> bool:
        """Returns whether to make the mix. If not, a note says why, unless it is the twin of
        another mix."""
        words = mix_words(mix)
        if (method, words) in self._tried:
            return False
        self._tried.add((method, words))
        num_weights = sum(part.num_weights(self._setup.source.spec) for part, _ in mix.rungs)
        bits = 8 * mix.read_bytes / num_weights
        if method.startswith("awq") and bits > _MOST_AWQ_BITS:
            reason = f"AWQ gains nothing at {bits:.1f} bits a weight"
            self._notes.not_tried.append(Skipped(name=name, reason=reason))
            return False
        if not self._aim.is_new(mix):
            reason = "one that is within the bounds is about as small and as fast"
            self._notes.not_tried.append(Skipped(name=name, reason=reason))
            return False
        return True

    def _tables(self) -> str:
        """Includes the output layer if it is a large part of what a step reads."""
        spec = self._setup.source.spec
        if output_share(spec) < MIN_OUTPUT_SHARE:
            return ""
        tied = f"-{EMBEDDING}-{OUTPUT_FORMAT}" if spec.is_tied else ""
        return f"-{OUTPUT}-{OUTPUT_FORMAT}{tied}"

    def _table_bytes(self) -> float:
        """Returns the bytes of the embedding in a candidate's file."""
        spec = self._setup.source.spec
        table = 2 * spec.vocab_size * spec.hidden_size
        return table / 2 if self._tables() else table

    def _timed(self, method: str, recipes: list[Recipe], start: float, end: float) -> None:
        began = time.perf_counter()

        def report(what: str, done: float) -> None:
            self._on_progress(what, start * (1 - done) + end * done)
            if self._found.measurements:
                self._deadline.check()

        measure_candidates(self._setup, recipes, self._found, report)
        self._seconds[method] = (time.perf_counter() - began) / len(recipes)

    def _mixes(self) -> Mixes | None:
        """Returns the frontiers of the parts' losses; None if the time does not allow measuring
        them."""
        source = self._setup.source
        spec = source.spec
        probes = [(part, own) for part in search_parts(spec) for own in probed_specs(part, spec)]
        tokens = self._text.num_tokens / self._setup.text.num_tokens
        estimated = len(probes) * self._seconds["rtn"] * max(tokens, 0.25)
        if not self._deadline.allows(estimated):
            reason = f"finding what parts lose takes about {estimated:.0f} s"
            self._notes.not_tried.append(Skipped(name="mixes of formats", reason=reason))
            return None

        def report(what: str, done: float) -> None:
            self._on_progress(what, _FIRST_SHARE + (_PARTS_SHARE - _FIRST_SHARE) * done)
            self._deadline.check()

        recipes = [self._probe(part, own) for part, own in probes]
        try:
            found = measure_losses(self._setup, recipes, self._text, report)
        except OutOfTimeError:
            reason = "finding what parts lose took longer than expected"
            self._notes.not_tried.append(Skipped(name="mixes of formats", reason=reason))
            return None
        float_bits = self._setup.source.linear(*_first_place(spec)).spec.bits
        losses: dict[str, dict[WeightSpec, float | None]] = {}
        for (part, own), loss in zip(probes, found, strict=True):
            losses.setdefault(part.name, {})[own] = loss
        fine_cost = self._fine_cost()
        ladders = [
            make_ladder(part, spec, losses[part.name], float_bits=float_bits, fine_cost=fine_cost)
            for part in search_parts(spec)
        ]
        return Mixes(by_cost=frontier(ladders, "cost"), by_bytes=frontier(ladders, "read_bytes"))

    def _fine_cost(self) -> float:
        """Returns the time of a decode step with inputs of two codes over that with one, in the
        first formats."""
        rates = [
            one.decode_tokens_per_s
            for recipe in self._first()[:2]
            for one in self._found.measurements
            if one.name == recipe.name and one.decode_tokens_per_s is not None
        ]
        return max(rates[0] / rates[1], 1.0) if len(rates) == 2 else 1.0

    def _probe(self, part: Part, spec: WeightSpec) -> Recipe:
        """Returns a recipe that rounds only this part to nearest, in that format."""
        rung = Rung(spec=spec, loss=0.0, read_bytes=0.0, cost=0.0)
        alone = Mix(loss=0.0, read_bytes=0.0, cost=0.0, rungs=((part, rung),))
        recipe = mix_recipe(alone, self._setup.source, "rtn")
        return replace(recipe, name=f"{part.name} {spec.name}")

    def _learn(self, method: str, mix: Mix, recipe: Recipe) -> None:
        self._notes.mixes[recipe.name] = mix_words(mix)
        self._made[recipe.name] = mix
        measured = [one for one in self._found.measurements if one.name == recipe.name]
        if measured and measured[-1].kl_divergence is not None and mix.loss > 0:
            self._gains[method] = max(measured[-1].kl_divergence / mix.loss, 0.05)
            if method == "gptq":
                expected = _EXPECTED_GAIN["awq-gptq"] / _EXPECTED_GAIN["gptq"]
                self._gains["awq-gptq"] = expected * self._gains["gptq"]

    def _estimated_s(self, method: str) -> float:
        """Returns the seconds that the last mix by that method took, else a computed estimate."""
        if method in self._seconds:
            return self._seconds[method]
        windows = self._setup.calibration
        if windows is None:
            return self._seconds["rtn"]
        tokens = windows.num_sequences * windows.num_tokens
        flops = tokens * _calibration_flops(self._setup.source.spec)
        methods = len(method.split("-"))
        return self._seconds["rtn"] + methods * flops / self._setup.machine.fp32_flops_per_s


def _calibration_flops(spec: ModelSpec) -> float:
    """Returns the operations per token: passes through the layers, and the products for
    Hessians."""
    squares = sum(
        spec.linear_shapes(layer)[role][1] ** 2
        for role, layer in linear_places(spec)
        if role.rpartition(".")[2] in ("q", "o", "gate", "down")
    )
    return _CALIBRATION_PASSES * 2 * spec.num_linear_parameters() + 2 * squares


def _first_place(spec: ModelSpec) -> tuple[str, int]:
    return next(iter(linear_places(spec)))
