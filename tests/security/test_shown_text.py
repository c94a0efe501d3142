"""S14 and K4: what files and clients bring reaches people escaped and cut, on every way out."""

import ast
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from drivers.hostile_text import HOSTILE, is_safe, texts
from drivers.running_server import running_server
from paredown.cli.main import main
from paredown.cli.verbs.serve_until_stopped import _announce
from paredown.errors import ParedownError
from paredown.evaluate.pictures.picture import load_matplotlib, picture_text
from paredown.models.gguf.file import read_gguf
from paredown.models.resolve import resolve_model
from paredown.serve.errors import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, HttpError
from paredown.shown import shown

SOURCE = Path(__file__).parents[2] / "src" / "paredown"
COMMAND = [sys.executable, "-m", "paredown.cli.main"]
# A file's name holds no slash, no NUL and at most 255 bytes.
NAME = "-e[red]\x1b[31m\x1b]0;x\x07$x^$\u202egnp\u202c\n'; touch pwned; ' \udc9b2J [b]"
CONFIG = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
printing = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@given(texts, texts)
def test_an_error_of_the_api_is_one_safe_short_line(message: str, param: str) -> None:
    body = HttpError(400, message, param=param).body()["error"]
    assert isinstance(body, dict)
    assert is_safe(body["message"])
    assert is_safe(body["param"])
    assert len(body["message"]) <= MAX_MESSAGE_CHARS
    assert len(body["param"]) <= MAX_NAME_CHARS


@pytest.fixture(scope="module")
def client():
    with running_server() as running:
        yield running.client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", {"prompt": "x", "\x1b[31m\u202e" + "y" * 100_000: 1}),
        ("completions", {"prompt": "x", "model": "\x1b]0;x\x07\u202e" + "y" * 900}),
        ("completions", {"prompt": "x", "model": "\x9b31m" + "y" * 100_000}),
        ("completions", {"prompt": "x", "logit_bias": {"\x1b[31m\u202e": 1}}),
        ("chat/completions", {"messages": [{"role": "\x1b\u202e" + "y" * 100_000, "content": ""}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "", "\x1b\u202e": 1}]}),
    ],
)
def test_what_a_client_sends_comes_back_safe_and_short(
    client: httpx.Client, path: str, body: dict[str, object]
) -> None:
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code in (400, 404)
    assert len(reply.content) < 4_000
    error = reply.json()["error"]
    assert is_safe(error["message"])
    assert is_safe(error["param"] or "")
    assert is_safe(reply.text)


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/nothing/"])
def test_what_a_client_asks_for_comes_back_safe_and_short(client: httpx.Client, path: str) -> None:
    reply = client.get(path + "%1b%5b31m%e2%80%ae%ff%0a" * 100)
    assert reply.status_code == 404
    assert len(reply.content) < 4_000
    assert is_safe(reply.text)


def config_file(folder: Path, **fields: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | fields))
    return folder / "config.json"


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["model_type", "hidden_act", "torch_dtype", "vocab_size"])
def test_fields_of_a_config_are_shown_safely(
    field: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown dtype is an error or a note; either tells what it saw."""
    code = main(["inspect", str(config_file(tmp_path, **{field: text}))])
    out, err = capsys.readouterr()
    assert code == 2 or field == "torch_dtype"
    assert is_safe(out + err, newlines=True)
    assert len(err) < 3_000


@pytest.mark.parametrize("where", ["a field", "a section", "a method"])
def test_names_of_fields_are_shown_safely(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "".join(HOSTILE)
    fields: dict[str, object] = {
        "a field": {odd: {odd: [odd]}},
        "a section": {"quantization_config": {"quant_method": "gptq", "bits": odd, odd: odd}},
        "a method": {"quantization_config": {"quant_method": odd}},
    }[where]
    main(["inspect", str(config_file(tmp_path, **fields))])
    out, err = capsys.readouterr()
    assert is_safe(out + err, newlines=True)


def hostile_folder(folder: Path) -> Path:
    """The packaged model under a stranger's name."""
    found = folder / NAME
    shutil.copytree(resolve_model(None), found)
    return found


def on_terminal(*words: str) -> str:
    """Returns the text that a verb writes to a terminal, without its colours."""
    process, terminal = pty.fork()
    if process == 0:
        os.execve(COMMAND[0], [*COMMAND, *words], os.environ | {"TERM": "xterm"})
    written = b""
    while True:
        try:
            written += (part := os.read(terminal, 1 << 16))
        except OSError:
            break
        if not part:
            break
    os.waitpid(process, 0)
    os.close(terminal)
    text = written.decode().replace("\r\n", "\n")
    # Styles, and the cursor of a progress bar.
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r", "", text)


def test_a_terminal_shows_the_name_and_obeys_none_of_it(tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path)
    text = on_terminal("inspect", str(folder), "--plot", str(tmp_path / "roofs.png"))
    assert is_safe(text, newlines=True)
    assert r"-e[red]\x1b[31m\x1b]0;x\x07$x^$\u202egnp\u202c\n'" in text.replace("\n", "")
    assert (tmp_path / "roofs.png").exists()
    text = on_terminal(
        "compress", str(folder), "-o", str(folder) + "2", "--recipe", "int8", "--no-verify"
    )
    assert is_safe(text, newlines=True)
    assert r"\x1b[31m" in text


def test_a_folder_with_an_odd_name_becomes_a_gguf_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the name inside, as text; a name of a file need not be any."""
    small, file = tmp_path / "\udcff\x1b[7m", tmp_path / "\udcfe.gguf"
    words = ["compress", str(hostile_folder(tmp_path)), "-o", str(small), "--recipe", "int4-g32"]
    assert main([*words, "--no-verify"]) == 0
    assert main(["convert", str(small), "-o", str(file), "--to", "gguf"]) == 0
    assert main(["inspect", str(file)]) == 0
    out, err = capsys.readouterr()
    assert is_safe(out + err, newlines=True)
    assert read_gguf(file).metadata["general.name"] == r"\udcff\x1b[7m"


def test_a_missing_file_is_told_safely(tmp_path: Path) -> None:
    text = on_terminal("inspect", str(tmp_path / NAME))
    assert is_safe(text, newlines=True)
    assert "paredown: " in text


@printing
@given(texts)
def test_the_lines_that_are_copied_are_words_of_a_shell(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    name = shown(text)
    example = ("/v1/completions", {"prompt": "It was"})
    _announce("http://127.0.0.1:8000", name, example, as_json=False)
    said, curl = capsys.readouterr().out.splitlines()
    assert is_safe(said + curl)
    *_, data = shlex.split(curl)
    assert json.loads(data)["model"] == name


def test_a_folder_with_an_odd_name_is_served(tmp_path: Path) -> None:
    """Its name in answers is text, escaped, and the printed commands work as they stand."""
    serve = [*COMMAND, "serve", NAME[1:], "--port", "0", "--pages", "64"]
    hostile_folder(tmp_path).rename(tmp_path / NAME[1:])
    with subprocess.Popen(
        serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said, curl = process.stdout.readline(), process.stdout.readline()
        url = said.rsplit(" answers at ", 1)[1].strip()
        [model] = httpx.get(f"{url}/models").json()["data"]
        reply = subprocess.run(["bash", "-c", curl], cwd=tmp_path, capture_output=True, check=True)
        process.terminate()
        log = process.stderr.read()
    assert is_safe(said + curl + log, newlines=True)
    assert is_safe(model["id"])
    assert json.loads(reply.stdout)["model"] == model["id"]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", [*HOSTILE, "$\\frac$", "\\$a$", "$$", "${"])
def test_a_name_in_a_picture_is_no_formula(name: str) -> None:
    figure = load_matplotlib("matplotlib.figure").Figure()
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    title = figure.suptitle(picture_text(name))
    figure.canvas.draw()
    drawn, is_formula = title._preprocess_math(title.get_text())
    assert not is_formula
    assert is_safe(drawn)


PRINTING = {"print", "Console", "Progress"}
DOORS = {"cli/printed.py", "cli/console.py"}


def test_nothing_prints_beside_the_doors() -> None:
    """Beside them a bar is drawn on a console of ours, and the server's log has its own door."""
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in PRINTING or re.fullmatch(r"sys\.(stdout|stderr)\.write", called):
                found.add((name, called))
    assert {one for one in found if one[0] not in DOORS} == {
        # Errors of ours, which are escaped, before the doors can be imported.
        ("cli/__init__.py", "print"),
        ("evaluate/quality/lm_eval.py", "print"),
        ("cli/progress_bar.py", "Progress"),
        ("serve/watch/line_writer.py", "sys.stderr.write"),
        ("serve/watch/log.py", "sys.stderr.write"),
    }


def test_a_message_is_bounded_before_it_is_made() -> None:
    """S10: of a container that stands for 10^11 entries a few are looked at."""
    value: object = "x"
    for _ in range(11):
        value = [value] * 10
    assert len(str(ParedownError("what", seen=value, remedy="none"))) < 1_000
