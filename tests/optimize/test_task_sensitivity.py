"""Leave one out on an encoder: figures against single runs on the texts of a task."""

import json

import pytest
from rich.console import Console

from fakes.task_texts import random_task
from fakes.tiny_encoders import variant
from paredown.cli.tables.sensitivity import legend, sensitivity_table
from paredown.compress.activations import parse_grid
from paredown.compress.quantize.rtn import RTN
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.quality.simulated import Variant
from paredown.evaluate.quality.simulated_texts import measure_text_variants
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.point_rounding import PointRounding, all_places
from paredown.optimize.report_sensitivity import SensitivityConfig, report_sensitivity
from paredown.optimize.sensitivity import SensitivityResult, measure_sensitivity, recovered
from paredown.optimize.sensitivity_plot import write_report
from paredown.optimize.sensitivity_texts import TaskConfig

GRID = parse_grid("int3-tensor-asym")
TASK = random_task(24, labels=[0, 1, 2] * 8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("encoder")
    variant("bert", "labels", num_labels=3)(folder)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def result(checkpoint) -> SensitivityResult:
    rounding = PointRounding(grid=GRID, layers=(1, 2))
    return measure_sensitivity(checkpoint, TASK, FORMATS["int4-g32"], ["layer"], RTN(), rounding)


def test_points_of_chosen_layers_are_rounded_alone_and_left_out(checkpoint, result) -> None:
    decoder = Decoder.from_checkpoint(checkpoint)
    rounding = PointRounding(grid=GRID)
    every = all_places(checkpoint.spec)
    own = ["layers.1.probabilities", "layers.2.probabilities"]
    variants = [
        Variant(taps=rounding.taps(places))
        for places in (every, own, [place for place in every if place not in own])
    ]
    (everything, alone, all_but), plain = measure_text_variants(decoder, variants, TASK)
    table = result.activations
    assert table is not None
    (row,) = [row for row in table.rows if row.name == "softmax output"]
    assert (row.alone, row.all_but, table.everything) == (alone, all_but, everything)
    assert result.plain == plain
    assert recovered(row, table) == pytest.approx(all_but.score - everything.score)
    assert "embedding sum" not in [row.name for row in table.rows]


def test_weights_of_layers_are_measured_on_the_task(result) -> None:
    assert [row.name for row in result.weights.rows] == ["layer 0", "layer 1", "layer 2"]
    assert all(row.alone.cosine_mean < 1 - 1e-6 for row in result.weights.rows)
    assert result.plain.cosine_least == pytest.approx(1.0)


def test_the_table_fits_and_the_report_has_every_figure(result, tmp_path) -> None:
    console = Console(width=80, record=True)
    console.print(sensitivity_table("activations", result.activations))
    console.print(legend(result.plain))
    shown = console.export_text()
    assert "layers 1, 2" in shown
    assert "accuracy" in shown
    assert "\u2026" not in shown
    write_report(result, tmp_path / "report")
    read = json.loads((tmp_path / "report" / "sensitivity.json").read_text())
    assert read["plain"]["scores"]["accuracy"] == result.plain.score
    assert (tmp_path / "report" / "sensitivity.png").is_file()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SensitivityConfig(), "predicts no text"),
        (SensitivityConfig(ranges="minmax"), "--ranges is about activations"),
        (SensitivityConfig(layers="1"), "--layers is about activations"),
        (SensitivityConfig(activations="int8-token", ranges="mse"), "whole tensor"),
        (SensitivityConfig(activations="int8-token", layers="3"), "no such layers"),
        (SensitivityConfig(task=TaskConfig(name="glue-wnli")), "no such GLUE task"),
        (SensitivityConfig(task=TaskConfig(name="glue-sst2"), kv="int8"), "--kv is measured"),
        (SensitivityConfig(task=TaskConfig(name="glue-sst2"), with_output=True), "--head"),
    ],
)
def test_what_cannot_be_is_said_before_the_work(checkpoint, config, message) -> None:
    with pytest.raises((ConfigError, UnsupportedError), match=message):
        report_sensitivity(checkpoint, config)


def test_a_batch_has_a_text() -> None:
    with pytest.raises(ConfigError, match="batch needs a text"):
        TaskConfig(name="glue-sst2", batch_texts=0)
