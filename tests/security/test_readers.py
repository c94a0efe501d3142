"""Whatever stands in a model's files, a reader takes it or says what is wrong: it raises nothing
but the types of paredown.errors."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.fuzz import seeds
from tools.fuzz.mutate import Mutator
from tools.fuzz.targets import TARGETS
from tools.fuzz.watch import MAX_SECONDS

from paredown.errors import CheckpointError, ParedownError
from paredown.formats.stored.table import read_quantization
from paredown.models.config import read_config
from paredown.models.families.table import FAMILIES
from paredown.models.files.json_file import read_json_object
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.files.shards import read_folder_tensors
from paredown.models.gguf.checkpoint import open_gguf
from paredown.models.gguf.file import read_gguf
from paredown.models.gguf.header import Value, build_header
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.text.chat_templates import ChatTemplates
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text_part import text_config

SETTINGS = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXTS = st.text(alphabet=st.characters(), max_size=8) | st.sampled_from(
    ["\ud800", "\0", "(a+)+$", "re:(", "x" * 3000, "linear", "yarn", "int4", "silu", "gelu"]
)
INTEGERS = st.integers() | st.sampled_from([-1, 0, 1, 2**31 - 1, 2**31, 2**63, 10**400])
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats() | TEXTS
JSON = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXTS, one, max_size=3)
)
CONFIGS = [json.loads(one) for one in seeds.configs()]
NAMES = sorted({name for config in CONFIGS for name in config})
# Fields of sections that say how a model turns and how it is quantized.
SECTIONS = sorted(
    {
        name
        for config in CONFIGS
        for section in (config.get("rope_scaling"), config.get("quantization_config"))
        if isinstance(section, dict)
        for name in section
    }
)


def check_config(config: dict[str, object]) -> None:
    found, _ = text_config(config)
    spec, _ = read_config(found)
    assert spec.hidden_size > 0
    section = found.get("quantization_config")
    if isinstance(section, dict):
        read_quantization(section, ["model.layers.0.mlp.up_proj.qweight"])


def as_file(folder: Path, config: Mapping[str, object]) -> dict[str, object]:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_json_object(path)


@SETTINGS
@given(st.sampled_from(CONFIGS), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_a_config_is_read_or_refused(
    tmp_path: Path, config: dict[str, object], changes: dict[str, object]
) -> None:
    with suppress(ParedownError):
        check_config(as_file(tmp_path, config | changes))


@SETTINGS
@given(
    st.sampled_from(["rope_scaling", "rope_parameters", "quantization_config", "text_config"]),
    st.sampled_from(CONFIGS),
    st.dictionaries(st.sampled_from(SECTIONS) | TEXTS, JSON, max_size=4),
)
def test_a_section_of_a_config_is_read_or_refused(
    tmp_path: Path, name: str, config: dict[str, object], changes: dict[str, object]
) -> None:
    section = config.get(name)
    changed = {**(section if isinstance(section, dict) else {}), **changes}
    with suppress(ParedownError):
        check_config(as_file(tmp_path, config | {name: changed}))


@SETTINGS
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(TEXTS, JSON, max_size=3))
def test_a_config_of_little_is_read_or_refused(family: str, fields: dict[str, object]) -> None:
    with suppress(ParedownError):
        check_config({"model_type": family} | fields)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"a": ' * 50_000 + "1" + "}" * 50_000,
        '{"hidden_size": ' + "9" * 6000 + "}",
        "",
        "nul",
        "{",
    ],
)
def test_json_that_is_none_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_json_object(path)


def test_a_config_of_many_fields_is_read_soon(tmp_path: Path) -> None:
    config = as_file(tmp_path, seeds.LLAMA | {f"k{number}": 1 for number in range(70_000)})
    start = time.process_time()
    check_config(config)
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "-0.0", "1e-400", "9" * 4000])
@pytest.mark.parametrize("name", ["rope_theta", "rms_norm_eps", "hidden_size", "vocab_size"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, name: str, value: str) -> None:
    config = json.dumps(seeds.LLAMA | {name: "HERE"}).replace('"HERE"', value)
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=name):
        check_config(read_json_object(tmp_path / "config.json"))


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "\x1b[2J", ""])
def test_an_index_names_files_as_files_can_be_called(tmp_path: Path, name: str) -> None:
    index = {"weight_map": {"a": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError):
        read_folder_tensors(tmp_path)


HEADS = st.dictionaries(
    TEXTS,
    JSON
    | st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BF16", "U8", "F8_E4M3"]),
            "shape": st.lists(INTEGERS, max_size=3),
            "data_offsets": st.lists(INTEGERS, min_size=1, max_size=3),
        }
    ),
    max_size=3,
)


@SETTINGS
@given(HEADS, st.integers(0, 64), st.sampled_from([0, 0, 1, -1, 2**40, 10**8]))
def test_a_safetensors_file_is_read_or_refused(
    tmp_path: Path, head: dict[str, object], num_bytes: int, more: int
) -> None:
    raw = json.dumps(head).encode()
    length = max(0, len(raw) + more).to_bytes(8, "little")
    path = tmp_path / "model.safetensors"
    path.write_bytes(length + raw + bytes(num_bytes))
    with suppress(ParedownError):
        tensors = read_safetensors(path)
        assert sum(one.array.nbytes for one in tensors.values()) <= num_bytes


def test_a_name_that_comes_twice_is_found_among_many(tmp_path: Path) -> None:
    names = ",".join(f'"{number:x}":0' for number in range(60_000))
    raw = f'{{{names},"ea5f":0}}'.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    start = time.process_time()
    with pytest.raises(CheckpointError, match="duplicate name 'ea5f'"):
        read_safetensors(path)
    assert time.process_time() - start < MAX_SECONDS


NUMBERS = st.sampled_from([0, 1, 2, 15, 2**31 - 1, 2**32 - 1])
VALUES: st.SearchStrategy[Value] = (
    st.text(max_size=6)
    | st.booleans()
    | NUMBERS.map(np.uint32)
    | st.floats(width=32).map(np.float32)
    | st.lists(st.text(max_size=3), max_size=4)
    | st.lists(NUMBERS, max_size=20).map(lambda one: np.array(one, np.uint32))
    | st.lists(st.floats(width=32), max_size=20).map(lambda one: np.array(one, np.float32))
)


@cache
def gguf_metadata(kind: int) -> dict[str, Value]:
    """Those of a sound file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(seeds.ggufs()[kind])
        return dict(read_gguf(path).metadata)


@SETTINGS
@given(st.data(), st.integers(0, 3))
def test_gguf_metadata_are_read_or_refused(tmp_path: Path, data: st.DataObject, kind: int) -> None:
    metadata = gguf_metadata(kind)
    keys = st.sampled_from(sorted(metadata)) | st.text(max_size=6)
    changes = data.draw(st.dictionaries(keys, VALUES, max_size=4))
    gone = data.draw(st.sets(st.sampled_from(sorted(metadata)), max_size=2))
    changed = {key: one for key, one in (metadata | changes).items() if key not in gone}
    for read in (open_gguf, lambda path: hugging_face_files(read_gguf(path).metadata, str(path))):
        path = tmp_path / "model.gguf"
        path.write_bytes(build_header(changed, []))
        with suppress(ParedownError):
            read(path)


@settings(SETTINGS, max_examples=60)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("name", [name for name, one in TARGETS.items() if one.is_default])
def test_what_a_fuzzer_makes_is_read_or_refused(tmp_path: Path, name: str, seed: int) -> None:
    target = TARGETS[name]
    data = Mutator(seed).changed(target.seeds(), is_json=target.is_json)
    path = tmp_path / target.file_name
    path.write_bytes(data)
    with suppress(ParedownError, *target.refusals):
        target.run(path)


@SETTINGS
@given(
    st.sampled_from([json.loads(one) for one in seeds.tokenizers()]),
    st.dictionaries(
        st.sampled_from(
            ["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"]
        ),
        JSON,
        min_size=1,
        max_size=2,
    ),
)
def test_a_tokenizer_is_read_or_refused(
    tmp_path: Path, sound: dict[str, object], changes: dict[str, object]
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(sound | changes))
    with suppress(ParedownError):
        Tokenizer.open(tmp_path).encode("ab c")


@SETTINGS
@given(
    st.dictionaries(
        st.sampled_from(["bos_token", "eos_token", "chat_template", "added_tokens_decoder"])
        | TEXTS,
        JSON,
        max_size=3,
    )
)
def test_a_tokenizer_config_is_read_or_refused(tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "tokenizer.json").write_bytes(seeds.tokenizers()[0])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with suppress(ParedownError):
        Tokenizer.open(tmp_path).encode("ab c")


# None of them asks for much: what does is stopped, which has tests of its own.
PIECES = st.sampled_from(
    [
        "{% for m in messages %}", "{% endfor %}", "{{ m.role }}", "{{ messages[0]['content'] }}",
        "{% if tools %}", "{% endif %}", "{{ x.y.z }}", "{{ 1 / 0 }}", "{{ raise_exception('a') }}",
        "{% set n = namespace() %}", "{% set n.a = 1 %}", "{{ messages | tojson }}", "{{", "%}",
        "{% macro f(x) %}", "{% endmacro %}", "{{ f(1) }}", "{{ ''.__class__ }}", "{% break %}",
        "{{ messages | map(attribute='role') | list }}", "{% include 'x' %}", "{% raw %}", "\ud800",
        "{{ strftime_now('%Y') }}", "{% generation %}", "{{ 'a' ~ 1 }}", "{{ [] | first }}",
    ]
)  # fmt: skip


@SETTINGS
@given(st.lists(PIECES | TEXTS, max_size=6).map("".join))
def test_a_template_renders_or_is_refused(template: str) -> None:
    messages = [{"role": "user", "content": "a"}]
    with suppress(ParedownError):
        ChatTemplates(template, "a file").render(messages, tools=None, special_tokens={})
