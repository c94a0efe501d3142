"""The importance of columns: what flows through Transformers' own model, looked at there."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from fakes.unseen_experts import leave_out_experts
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.importance_walk import SquareSum, importance_walk
from paredown.compress.calibrate.workspace import open_workspace
from paredown.compress.compress import compress
from paredown.compress.importance import Importance
from paredown.errors import CapacityError, CheckpointError
from paredown.formats.gguf.fitted_rows import fitted_rows
from paredown.models.checkpoint import Checkpoint

FAMILIES = ("llama-tied", "qwen3", "gemma3", "phi3", "gpt-neox", "opt", "granite")
UNSEEN = 3


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


def walk(source: Checkpoint, calibration: Calibration, folder: Path) -> Importance:
    with open_workspace(folder, "it") as workspace:
        return importance_walk(source, calibration, workspace, lambda what, share: None)


def slow_sums(folder: Path, windows_NT: np.ndarray) -> dict[str, np.ndarray]:
    """The sum of squares of what each linear module reads, one token after the other."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found: dict[str, np.ndarray] = {}

    def look(name: str) -> None:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            for row in inputs[0].double().flatten(0, -2):
                found[name] = found.get(name, 0) + row.square().numpy()

        model.get_submodule(name).register_forward_pre_hook(hook)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            look(name)
    with torch.no_grad():
        for window in windows_NT:
            model(torch.from_numpy(window)[None])
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_flows_through_the_model(
    family: str, calibration: Calibration, tmp_path: Path
) -> None:
    VARIANTS[family](tmp_path / "in", torch.float32, 4)
    source = Checkpoint.open(tmp_path / "in")
    found = walk(source, calibration, tmp_path / "work")
    expected = slow_sums(tmp_path / "in", calibration.windows_NT)
    output = source.names.embedding if source.spec.is_tied else source.names.output
    expected[output] = expected.pop("lm_head")
    assert found.modules.keys() == expected.keys()
    for name, one in found.modules.items():
        np.testing.assert_allclose(one.sum_squares_I, expected[name], rtol=2e-4, atol=1e-6)
        assert one.num_rows == calibration.windows_NT.size
    assert (found.num_windows, found.num_tokens, found.text) == (6, 24, "random tokens")
    assert not (tmp_path / "work").exists()


def test_a_walk_that_was_killed_goes_on(calibration: Calibration, tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path / "in", torch.float32, 4)
    source = Checkpoint.open(tmp_path / "in")
    whole = walk(source, calibration, tmp_path / "work")

    def kill(what: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        open_workspace(tmp_path / "work", "it") as workspace,
    ):
        importance_walk(source, calibration, workspace, kill)
    shares: list[float] = []
    with open_workspace(tmp_path / "work", "it") as workspace:
        assert workspace.num_finished == 1
        again = importance_walk(
            source, calibration, workspace, lambda what, share: shares.append(share)
        )
    assert shares == [0.5]
    for name, one in whole.modules.items():
        np.testing.assert_array_equal(again.modules[name].sum_squares_I, one.sum_squares_I)


def test_what_does_not_fit_is_refused_before_any_work(
    calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VARIANTS["llama-gqa"](tmp_path / "in", torch.float32, 4)
    monkeypatch.setattr(
        "paredown.compress.calibrate.memory.available_memory_bytes", lambda: 1 << 20
    )
    with pytest.raises(CapacityError, match="does not fit in memory"):
        walk(Checkpoint.open(tmp_path / "in"), calibration, tmp_path / "work")


def test_inputs_that_are_no_numbers_name_the_layer() -> None:
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        SquareSum(4).add(torch.tensor([[1.0, 2.0, torch.nan, 0.0]]))


def test_sums_of_many_rows_stay_exact() -> None:
    """In float32 the thousandth part of a sum would be lost."""
    seen = SquareSum(2)
    for _ in range(50):
        seen.add(torch.full((100, 2), 1000.0))
        seen.add(torch.full((100, 2), 0.1))
    assert seen.num_rows == 10_000
    sums = seen.tensors("m")["m.sum_squares"].to_float32()
    np.testing.assert_allclose(sums, 5000 * (1e6 + 0.01), rtol=1e-7)


def test_e11_an_expert_that_saw_no_token_is_fitted_as_without_importance(
    calibration: Calibration, tmp_path: Path
) -> None:
    """Case E11: no NaN, the expert counts all columns alike, and lies in its siblings' format."""
    leave_out_experts(tmp_path / "in", "mixtral", [UNSEEN])
    source = Checkpoint.open(tmp_path / "in")
    found = walk(source, calibration, tmp_path / "work")
    assert all(np.isfinite(one.sum_squares_I).all() for one in found.modules.values())
    unseen = {name for name, one in found.modules.items() if one.num_rows == 0}
    roles = [f"experts.{UNSEEN}.{own}" for own in ("gate", "up", "down")]
    assert unseen == {source.linear_name(role, layer) for role in roles for layer in (0, 1)}
    for name in ("Q4_K", "Q6_K", "Q5_0"):
        values = np.tile(source.linear(roles[0], 0).dequantize(), 4)
        told = found.modules[source.linear_name(roles[0], 0)].mean_squares()
        assert told is None
        np.testing.assert_array_equal(
            fitted_rows(name, values, told), fitted_rows(name, values, None)
        )
    for recipe in ("gptq-int4-g32", "int4-g32"):
        result = compress(source, tmp_path / recipe, recipe, calibration=calibration)
        written = Checkpoint.open(tmp_path / recipe)
        specs = {
            written.weight_specs()[written.linear_name(f"experts.{expert}.down", 0)]
            for expert in range(4)
        }
        assert len(specs) == 1
        for role in roles:
            assert np.isfinite(written.linear(role, 0).dequantize()).all()
        if recipe.startswith("gptq"):
            assert any(f"experts.{UNSEEN} saw no token" in note for note in result.notes)
