"""The picture and the page: labels apart, nothing fetched, nothing injected."""

import io
import math
import re
import shlex
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape
from matplotlib.image import imread

from drivers.hostile_text import HOSTILE, is_safe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import UnsupportedError
from paredown.evaluate.pictures.picture import require_matplotlib
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.bounds import Bounds
from paredown.optimize.candidates import Skipped
from paredown.optimize.front import mark_front
from paredown.optimize.optimize import write_report
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.plot import draw_front
from paredown.shown import shown
from paredown.spec.machine import Machine

NAMES = (
    "bf16",
    "fp8",
    "int8",
    "w8a8",
    "int6-g128",
    "int5-g64",
    "int4-g32",
    "int4-g128",
)
MACHINE = Machine(
    name="<b>toy</b>",
    isa="generic",
    num_cores=1,
    num_threads=1,
    memory_bytes=1 << 30,
    bandwidth_bytes_per_s=1e9,
    int8_ops_per_s=8e9,
    bf16_flops_per_s=4e9,
    fp32_flops_per_s=2e9,
)


def candidates(seed: int = 0) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    specs = {name: find_recipe(name).linear for name in NAMES}
    return mark_front(
        [
            Measurement(
                name=name,
                linear_dtype=spec.dtype,
                bits_per_weight=float(spec.bits),
                file_bytes=int(1e6 * (spec.bits + rng.uniform(0, 1))),
                perplexity=20 * (1 + rng.uniform(0, 0.3) / spec.bits),
                bits_per_byte=1.5,
                kl_divergence=0.01,
                top1_agreement=0.9,
                decode_tokens_per_s=16000 / spec.bits * rng.uniform(0.9, 1.1),
                prefill_tokens_per_s=5000.0,
                mbu=0.5,
                mfu=0.2,
                decode_spread=0.01,
                prefill_spread=0.01,
            )
            for name, spec in specs.items()
        ]
    )


def reference() -> Measurement:
    return Measurement(
        name="original",
        linear_dtype="bf16",
        bits_per_weight=16.0,
        file_bytes=20_000_000,
        perplexity=20.0,
        bits_per_byte=1.5,
        decode_tokens_per_s=1000.0,
        prefill_tokens_per_s=5000.0,
        mbu=0.5,
        mfu=0.2,
    )


def result(**changes) -> OptimizeResult:
    options = {
        "model": "a<script>b",
        "candidates": candidates(),
        "reference": reference(),
        "skipped": [Skipped(name="int4-g128", reason="groups of 128 do not divide <96>")],
        "clamped": {"fp16": {"a.weight": 3}},
        "notes": {"gptq-int4": ("layer 1: experts.5 saw no token: <b>",)},
        "machine": MACHINE,
        "protocol": "100 tokens of x",
        "calibration": None,
        "text_choice": None,
        "bounds": Bounds(max_quality_loss=0.01),
        "nearest": None,
        "missed": (),
        "not_tried": [],
        "mixes": {},
        "pruned": {},
        "stopped": None,
        "exit_code": None,
        "chosen": "int8",
        "note": "-head-int8 was tried: 63% of <b>",
        "verification": None,
        "not_verified": None,
        "output": Path("out"),
        "report": Path("rep"),
    }
    return OptimizeResult(**(options | changes))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("chosen", ["int8", None])
def test_the_picture_is_drawn(dark: bool, chosen: str | None) -> None:
    png = draw_front(candidates(), reference(), chosen, 0.01, dark=dark)
    pixels = imread(io.BytesIO(png))
    assert pixels.shape[:2] == (864, 1760)
    corner = pixels[2, 2, :3].mean()
    assert corner < 0.2 if dark else corner > 0.9
    assert pixels[:, :, :3].std() > 0.02


def test_one_candidate_and_equal_candidates_can_be_drawn() -> None:
    one = candidates()[:1]
    assert draw_front(one, reference(), None, 0.0, dark=False)
    same = [candidates()[3]] * 2
    assert draw_front(same, reference(), None, 0.01, dark=False)


def test_the_report_stands_alone_and_escapes(tmp_path: Path) -> None:
    write_report(result(), tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "front.png",
        "report.html",
        "results.json",
    }
    html = (tmp_path / "report" / "report.html").read_text()
    assert re.findall(r"""(?:src|href|srcset)=["'](?!data:)""", html) == []
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    assert "<script" not in html
    assert "a&lt;script&gt;b" in html
    assert "&lt;b&gt;toy" in html
    assert "63% of &lt;b&gt;" in html
    assert "groups of 128 do not divide &lt;96&gt;" in html
    assert "3 values" in html
    assert "paredown serve out" in html
    assert "100 tokens of x" in html
    for name in NAMES:
        assert f"<td>{name}</td>" in html


@pytest.mark.parametrize("text", ["".join(HOSTILE), "<b>'; touch x; '"])
def test_a_strangers_text_is_one_safe_line_of_the_report(text: str, tmp_path: Path) -> None:
    odd = result(
        model=text,
        clamped={"fp16": {text: 3}},
        notes={"int8": (text,)},
        protocol=text,
        output=Path("-a") / text,
    )
    write_report(odd, tmp_path / "report")
    html = (tmp_path / "report" / "report.html").read_text()
    assert is_safe(html, newlines=True)
    assert f"<title>{escape(shown(text))}: what smaller costs</title>" in html
    if is_safe(text):
        [command] = re.findall("<pre><code>(.*)</code></pre>", html)
        assert shlex.split(unescape(command)) == ["paredown", "serve", f"./-a/{text}"]


def test_a_report_without_a_choice_says_so(tmp_path: Path) -> None:
    write_report(
        result(chosen=None, output=None, skipped=[], clamped={}, notes={}), tmp_path / "report"
    )
    html = (tmp_path / "report" / "report.html").read_text()
    assert "none was chosen" in html
    assert "paredown serve" not in html
    assert "Skipped" not in html


def test_without_matplotlib_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match="pip install matplotlib"):
        require_matplotlib("give --no-report")


@pytest.mark.parametrize("perplexity", [math.inf, math.nan])
@pytest.mark.parametrize("num_broken", [1, len(NAMES)])
def test_a_candidate_without_a_finite_perplexity_is_left_out(
    perplexity: float, num_broken: int
) -> None:
    all_good = candidates()
    broken = [replace(one, perplexity=perplexity) for one in all_good[:num_broken]]
    mixed = mark_front([*broken, *all_good[num_broken:]])
    good = mark_front(all_good[num_broken:])
    pictures = [draw_front(some, reference(), None, 0.01, dark=False) for some in (mixed, good)]
    assert np.array_equal(*(imread(io.BytesIO(one)) for one in pictures))


def test_nothing_lost_and_nothing_allowed_can_be_drawn() -> None:
    same = replace(candidates()[0], perplexity=reference().perplexity)
    assert draw_front([same], reference(), same.name, 0.0, dark=True)
