"""`paredown inspect`: tables, JSON, formulas and pictures, over every config there is."""

import json
import re
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

from drivers.shared_data import data_folder, needs_data
from paredown.cli.main import main
from paredown.errors import OutputError
from paredown.models.config import spec_from_config
from paredown.models.config_alone import read_config_alone
from paredown.models.families.table import FAMILIES
from paredown.models.files.whole_file import whole_file

ROOT = Path(__file__).parents[3]
DATA = data_folder("configs") or Path()
LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}

# Of Llama 3.1 405B.
WIDE = {
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "head_dim": 128,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def inspect(*words: object) -> int:
    return main(["inspect", *map(str, words)])


@pytest.mark.parametrize("sizes", [{}, WIDE], ids=["plain", "wide"])
def test_tables_fit_a_terminal(
    config: Path, capsys, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int]
) -> None:
    """No cell is cut, and a shape, a figure or a kind of bound is in one piece."""
    monkeypatch.setenv("COLUMNS", "80")
    config.write_text(json.dumps(LLAMA | sizes))
    words = ("--batch", 8, "--weights", "int4-g32", "--kv-dtype", "int8,first2=bf16")
    assert inspect(config, "--machine", "h100", *words) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for word in ("prefill: 512 tokens", "decode: 8 x 1", "weighted sum", "TTFT", "what pays"):
        assert word in out
    assert "…" not in out
    made = LLAMA | sizes
    hidden, inner, layers = (
        str(made[one]) for one in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    rows = [line.split() for line in out.splitlines()]
    (prefill, decode) = [row for row in rows if row[:1] == ["down"]]
    assert prefill[1:3] == decode[1:3] == [layers, f"{hidden}x{inner}"]
    assert {row[8] for row in (prefill, decode)} == {"math", "memory"}
    assert sum(f"128256x{hidden}" in row for row in rows) == 4
    assert "1 2 4 8 16 32 64 128" in " ".join(out.replace("┃", " ").split())


def test_the_formulas_fit_a_terminal(config: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert inspect(config, "--symbolic") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert "…" not in out


def test_json_has_every_figure(config: Path, capsys) -> None:
    assert inspect(config, "--machine", "a100", "--json", "--context", 2048, "--batch", 3) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["num_parameters"] == 1_235_814_400
    assert found["memory_bytes"]["kv"] == 2 * 16 * 3 * 2048 * 8 * 64 * 2
    by_name = {one["operation"]: one for one in found["operations"]["decode"]}
    assert by_name["down"]["flops"] == 2 * 3 * 16 * 2048 * 8192
    assert by_name["down"]["bound"] == "memory"
    assert by_name["down"]["predicted_s"] > by_name["down"]["best_s"]
    assert found["flops"]["without_kv_cache"] > found["flops"]["with_kv_cache"]
    assert found["predicted"]["tpot_s"] > found["best_s"]["decode"]
    assert set(found["int4_g32_break_even_batch"]) == {"bf16", "int8"}


def test_a_folder_without_weights_is_its_config(config: Path, capsys) -> None:
    assert inspect(config.parent, "--machine", "l4", "--json") == 0
    assert "no weights were looked at" in capsys.readouterr().err


def test_the_packaged_model_without_a_word(capsys) -> None:
    assert inspect("--machine", "graviton4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory_bytes"]["weights"] == pytest.approx(20.56e6, rel=0.01)


def test_layers_may_keep_keys_and_values_otherwise(config: Path, capsys) -> None:
    words = (config, "--machine", "h100", "--json", "--context", 2048, "--kv-dtype")
    bytes_of = {}
    for choice in ("bf16", "int8", "int8,first3=bf16"):
        assert inspect(*words, choice) == 0
        found = json.loads(capsys.readouterr().out)
        bytes_of[choice] = found["memory_bytes"]["kv"]
    layers = found["model"]["num_layers"]
    wide, narrow, both = bytes_of.values()
    assert both == (3 * wide + (layers - 3) * narrow) / layers
    names = [one["operation"] for one in found["operations"]["decode"]]
    assert {"scores, bf16", "scores, int8", "weighted sum, int8"} <= set(names)
    assert inspect(*words, "int8,first99=bf16") == 2
    assert "no such layers" in capsys.readouterr().err


def test_this_machine_is_measured_where_nothing_was_kept(
    config: Path, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    assert inspect(config, "--json", "--threads", 1) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["machine"]["source"] == "measured"
    assert "doctor --sweep" in captured.err


def test_formulas(config: Path, capsys) -> None:
    assert inspect(config, "--symbolic", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {one["operation"]: one for one in found["prefill"]}
    assert by_name["q"]["intensity"] == "LD/(2L + D)"
    assert by_name["k"]["flops"] == "2LKDd"
    assert inspect(config, "--symbolic") == 0
    assert "LD/(2L + D)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("--plot", "x.png"), ("--batch", -4), ("--context", 9), ("--acceptance", 0.5)]
)
def test_formulas_take_no_numbers(config: Path, words: tuple[str, object], capsys) -> None:
    assert inspect(config, "--symbolic", *words) == 2
    assert f"--symbolic and {words[0]} exclude each other" in capsys.readouterr().err


def test_a_model_that_does_not_fit_is_told_by_how_much(tmp_path: Path, capsys) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"num_hidden_layers": 400}))
    words = (path, "--machine", "l4", "--context", 1024)
    assert inspect(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    memory = found["memory_bytes"]
    assert found["max_sequences"] == 0
    assert found["missing_bytes"] == pytest.approx(memory["total"] - 0.9 * 24e9, abs=1)
    assert inspect(*words) == 0
    assert "does not fit: missing for one of them" in capsys.readouterr().out


def test_a_picture_is_refused_before_any_work(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is not even looked for."""
    for verb in ("inspect", "plan", "simulate"):
        assert main([verb, "no-such-model", "--plot", str(tmp_path / "none" / "a.png")]) == 2
        assert "no folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for verb in ("inspect", "plan", "simulate"):
        assert main([verb, "no-such-model", "--plot", str(tmp_path / "a.png")]) == 2
        assert "needs matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_a_picture(config: Path, tmp_path: Path, suffix: str, capsys) -> None:
    path = tmp_path / f"roofline.{suffix}"
    assert inspect(config, "--machine", "h100", "--plot", path) == 0
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == "png" else b"<!doctype html>")
    assert inspect(config, "--machine", "h100", "--plot", path) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_bytes() == data


def test_a_file_in_no_folder_is_a_typed_error() -> None:
    with (
        pytest.raises(OutputError, match="could not be written"),
        whole_file(Path("/dev/null/a.png")),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "abacus"], "abacus.*h100"),
        (["--batch", "-1"], "--batch"),
        (["--batch", "99999999999"], "Use 1 to 1,000,000,000"),
        (["--plot", "/nonexistent/a.png"], "no folder /nonexistent"),
        (["--symbolic", "--machine", "nope"], "--symbolic and --machine exclude"),
        (["--context", "999999999"], "131,072 positions"),
        (["--weights", "int4-g33"], "--weights names no format"),
        (["--head", "bf17"], "--head names no format"),
        (["--acceptance", "1.5"], "--acceptance"),
        (["--plot", "roofline.gif"], "PNG and HTML"),
    ],
)
def test_bad_options_are_refused(config: Path, words: list[str], message: str, capsys) -> None:
    options = words if "--machine" in words else [*words, "--machine", "h100"]
    assert inspect(config, *options) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "does not hold a JSON object"),
        ("{", "not valid JSON"),
        (json.dumps(LLAMA | {"hidden_size": -1}), "hidden_size"),
        (json.dumps(LLAMA | {"num_hidden_layers": 10**9}), "num_hidden_layers.*1 to 10000"),
        (
            json.dumps(LLAMA | {"model_type": "qwen3_moe", "num_experts": 10**9}),
            "num_experts.*1 to 10000",
        ),
        (json.dumps(LLAMA | {"model_type": "rwkv"}), "rwkv.*Known model types"),
    ],
)
def test_bad_configs_are_refused(tmp_path: Path, text: str, message: str, capsys) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert inspect(path, "--machine", "h100") == 2
    assert re.search(message, capsys.readouterr().err)


@needs_data("configs")
def test_every_config_is_shown_or_refused_by_name(capsys) -> None:
    """Those of families we know have numbers; the others are told why, and what we know."""
    shown, refused, known_types = [], [], {*FAMILIES}
    for path in sorted(DATA.rglob("*.json")):
        code = inspect(path, "--machine", "h100", "--json", "--prompt-tokens", 8, "--context", 16)
        captured = capsys.readouterr()
        config = json.loads(path.read_text())
        known = isinstance(config, dict) and config.get("model_type") in known_types
        if code == 0:
            found = json.loads(captured.out)
            assert known
            assert found["predicted"]["tpot_s"] > 0
            shown.append(path.name)
            continue
        assert code == 2
        if not known and isinstance(config, dict) and "model_type" in config:
            assert re.search(r"unknown model_type.*Known model types", captured.err)
        else:
            assert re.search(r"lacks the field|JSON object", captured.err)
        refused.append(path.name)
    assert len(shown) >= 24
    assert "Qwen--Qwen3-30B-A3B_config.json" in shown
    assert "meta-llama--Meta-Llama-3.1-405B_config.json" in shown
    assert "google--gemma-4-26B-A4B_config.json" in refused
    # DeepSeek's MLA has no such keys and values as the formulas count.
    assert "deepseek-ai--DeepSeek-V3_config.json" in refused
    assert not any(path.name in refused for path in (DATA / "eagle").iterdir())


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("llama", ["max_position_embeddings"]),
        ("mixtral", ["num_local_experts", "num_experts_per_tok"]),
    ],
)
def test_fields_of_drafts_left_out_have_the_defaults_of_transformers(
    tmp_path: Path, family: str, names: list[str], capsys
) -> None:
    path = tmp_path / "config.json"
    given = {name: value for name, value in LLAMA.items() if name not in names}
    path.write_text(json.dumps(given | {"model_type": family}))
    alone = read_config_alone(path)
    theirs = AutoConfig.for_model(**{**given, "model_type": family})
    assert alone.spec == spec_from_config(theirs.to_dict())
    assert all(name in " ".join(alone.notes) for name in names)
    path.write_text(json.dumps(given | {"model_type": family, names[0]: 16}))
    assert names[0] not in " ".join(read_config_alone(path).notes)


NEOX = {
    "model_type": "gpt_neox",
    "vocab_size": 50304,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 2048,
}
GEMMA2 = {
    "model_type": "gemma2",
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
}


@pytest.mark.parametrize(
    ("family", "num_parameters", "left_out"),
    [
        # As published (Pythia 410M; Gemma 2 2B; gpt-oss-20b).
        (NEOX, 405_334_016, 0),
        (GEMMA2, 2_614_341_888, 0),
        # Biases of experts and routers, a sink of each head.
        (GPT_OSS, 20_914_757_184, 24 * (32 * 3 * 2880 + 32 + 64)),
    ],
)
def test_families_that_are_costed_alone(
    tmp_path: Path, family: dict[str, object], num_parameters: int, left_out: int, capsys
) -> None:
    """inspect, plan and simulate take them; nothing loads them."""
    path, name = tmp_path / "config.json", str(family["model_type"])
    path.write_text(json.dumps(family))
    assert inspect(path, "--machine", "h100", "--json", "--context", 8192 // 4) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["model"]["num_parameters"] == num_parameters - left_out
    told = {
        "gpt_oss": "gpt_oss is costed, not run",
        "gemma2": "no weights were looked at",
        "gpt_neox": "no weights were looked at",
    }[name]
    assert told in shown.err
    if name != "gpt_neox":
        layers = int(family["num_hidden_layers"])  # type: ignore[call-overload]
        runs = found["model"]["layers"]
        assert [one["count"] for one in runs] == [1] * layers
        windows = [one["attention"]["window"] for one in runs]
        assert windows[1::2] == [None] * (layers // 2)
        assert None not in windows[::2]
        names = {one["operation"]: one["count"] for one in found["operations"]["decode"]}
        assert names["scores"] == names["scores, window"] == layers // 2
    load = ["--machine", "h100", "--rps", "1", "--input-tokens", "9", "--output-tokens", "4"]
    assert main(["simulate", str(path), *load, "--requests", "9", "--json"]) == 0
    assert told in capsys.readouterr().err
    assert main(["compress", str(tmp_path), "-o", str(tmp_path / "out"), "--recipe", "int8"]) == 2
    refusal = f"not run.*{name}" if name == "gpt_oss" else "safetensors"
    assert re.search(refusal, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
