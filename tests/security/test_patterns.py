"""Regular expressions of files and recipes are matched in a time that is linear in the name, and
one that cannot be is an error of one line."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.schemes import resolve_schemes
from paredown.compress.steps import QuantizeStep
from paredown.errors import ParedownError
from paredown.formats.stored.auto_round import read_auto_round
from paredown.formats.stored.compressed_tensors.read_section import read_compressed_tensors
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.stored.gptq import read_gptq
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

SOON_S = 10.0
SOURCE = Path(__file__).parent.parent.parent / "src" / "paredown"
MODULE = "model.layers.10.self_attn.quite_a_long_name_of_a_module_q_proj"
NAMES = [f"{MODULE}.qweight", f"{MODULE}.weight_packed"]
SLOW = ("(([a-z0-9_.])+)+!", "(a|a|b|[a-z.0-9_])*!", "(.*)*(.*)*(.*)*(.*)*!", "^(?!(.*.*)*!).*!$")
ODD = ("(" * 5_000, "a{99999999999999}", "(a{999}){999}", r"(a)\1", "a(?<!b)", "[", "\\", "(?P<a")
Section = Mapping[str, Any]


def match_compressed_tensors(name: str) -> None:
    for ignore, targets in (([f"re:{name}"], ["Linear"]), ([], [f"re:{name}", "Linear"])):
        section = quantization_config(FORMATS["int4-g32"], ignore)
        groups: dict[str, Any] = section["config_groups"]  # type: ignore[assignment]
        groups["group_0"]["targets"] = targets
        assert read_compressed_tensors(section, NAMES).form_for(MODULE) is not None


def match_gptq(name: str) -> None:
    for sign in ("-:", "+:", ""):
        section = {"bits": 4, "quant_method": "gptq", "dynamic": {sign + name: {"bits": 8}}}
        form = read_gptq(section, NAMES).form_for(MODULE)
        assert form is not None
        assert form.spec.bits == 4


def match_auto_round(name: str) -> None:
    section = {"quant_method": "auto-round", "bits": 4, "extra_config": {name: {"bits": 8}}}
    read_auto_round(section, NAMES).form_for(MODULE)


def match_recipe(name: str) -> None:
    target = QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=(f"re:{name}",))
    with pytest.raises(ParedownError, match="matches no linear layer") as raised:
        resolve_schemes(Recipe(name="r", steps=(target,)), Checkpoint.open(resolve_model(None)))
    if "matches" not in raised.value.what:
        raise raised.value


READERS = (match_compressed_tensors, match_gptq, match_auto_round, match_recipe)


@pytest.mark.parametrize("pattern", SLOW)
@pytest.mark.parametrize("reader", READERS)
def test_no_pattern_takes_long(reader: Callable[[str], None], pattern: str) -> None:
    """A pattern that is not read is refused, others come to their end."""
    start_s = time.monotonic()
    try:
        reader(pattern)
    except ParedownError as error:
        assert "lookahead" in str(error)  # noqa: PT017
    assert time.monotonic() - start_s < SOON_S


@pytest.mark.parametrize("pattern", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("reader", READERS[:3])
def test_an_odd_pattern_is_one_line(reader: Callable[[str], None], pattern: str) -> None:
    with pytest.raises(ParedownError) as raised:
        reader(pattern)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize("pattern", ODD, ids=range(len(ODD)))
def test_an_odd_target_of_a_recipe_is_one_line(pattern: str) -> None:
    target = QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=(f"re:{pattern}",))
    with pytest.raises(ParedownError, match="regular expression") as raised:
        resolve_schemes(Recipe(name="r", steps=(target,)), Checkpoint.open(resolve_model(None)))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1_000


def test_many_patterns_take_no_longer_than_many_names() -> None:
    modules = [f"model.layers.{i}.mlp.up_proj" for i in range(4_000)]
    names = {f"{module}.qweight" for module in modules}
    dynamic = {f"-:^{re.escape(module)}$": {} for module in modules[1:]}
    start_s = time.monotonic()
    config = read_gptq({"bits": 4, "quant_method": "gptq", "dynamic": dynamic}, names)
    assert [module for module in modules if config.form_for(module)] == modules[:1]
    assert time.monotonic() - start_s < SOON_S


def test_a_model_without_patterns_does_without_the_engine() -> None:
    code = "import paredown.models.checkpoint, paredown.compress.schemes, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "paredown.formats.module_pattern" in loaded
    assert "re2" not in loaded


def test_pythons_own_engine_compiles_no_pattern_of_a_stranger() -> None:
    """Rooms that read names and patterns of files have no `re` but in files listed here, whose
    patterns are their own."""
    known = {"formats/module_pattern.py", "formats/stored/gptq.py"}  # the second escapes names
    rooms = (SOURCE / "formats", SOURCE / "compress")
    found = {
        path.relative_to(SOURCE).as_posix()
        for room in rooms
        for path in room.rglob("*.py")
        if "re." in path.read_text() and "\nimport re\n" in path.read_text()
    }
    own = {
        "compress/activations.py",
        "compress/calibrate/workspace.py",
        "compress/group_sizes.py",
        "compress/prune/pattern.py",
        "compress/prune_names.py",
        "compress/train_names.py",
    }
    assert found <= known | own
