import argparse
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from paredown.cli import main as cli
from paredown.errors import CheckpointError

HEAVY = ("torch", "transformers", "numpy", "tokenizers", "rich", "pydantic", "starlette", "jinja2")


def run(*words, **options):
    command = [sys.executable, "-m", "paredown.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def modules_after(code):
    probe = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.fixture
def verb(monkeypatch):
    """A verb whose `run` the test gives."""

    def install(run, *, option=None):
        module = types.ModuleType("paredown.cli.verbs.bench")
        module.add_arguments = lambda parser: (
            [
                parser.add_argument(name) if name[0] != "-" else parser.add_argument(name, type=int)
                for name in ([option] if option else [])
            ]
            + [parser.add_argument("--json", action="store_true")]
        )
        module.run = run
        monkeypatch.setitem(sys.modules, "paredown.cli.verbs.bench", module)

    return install


def test_help_imports_nothing_heavy():
    loaded = modules_after("from paredown.cli.main import main; main(['--help'])")
    assert not loaded & set(HEAVY)


def test_generating_imports_neither_torch_nor_the_http_stack():
    loaded = modules_after("import paredown.cli.verbs.generate, paredown.cli.verbs.chat")
    assert not loaded & {"torch", "transformers", "rich", "pydantic", "starlette", "uvicorn"}


def test_serving_never_imports_torch():
    assert not modules_after("import paredown.cli.verbs.serve") & {"torch", "transformers"}


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb_with_examples(capsys, words):
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in cli.VERBS)
    assert "paredown generate" in shown


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("paredown 0.")


@pytest.mark.parametrize("name", ["generate", "chat", "serve"])
def test_the_help_of_a_verb_teaches_by_example_and_offers_json(capsys, name):
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"paredown {name}" in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    "words",
    [["fly"], ["generate", "--nonsense"], ["generate", "--seed", "x"], ["serve", "--por=1"]],
)
def test_words_that_make_no_sense_exit_with_2(capsys, words):
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("paredown: ")


def test_an_error_is_told_with_its_remedy_and_as_json(capsys, verb):
    def fail(args: argparse.Namespace) -> int:
        raise CheckpointError("it is broken", seen=3, remedy="Mend it.")

    verb(fail)
    assert cli.main(["bench"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "paredown: it is broken (saw: 3). Mend it.\n")
    assert cli.main(["bench", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {
        "type": "CheckpointError",
        "message": "it is broken (saw: 3). Mend it.",
        "what": "it is broken",
        "seen": "3",
        "remedy": "Mend it.",
    }


def test_the_exit_code_is_the_verbs_own(verb):
    verb(lambda args: args.code, option="--code")
    assert cli.main(["bench", "--code", "0"]) == 0
    assert cli.main(["bench", "--code", "7"]) == 7


def test_an_interruption_is_one_line_and_130(capsys, verb):
    def interrupt(args):
        raise KeyboardInterrupt

    verb(interrupt)
    assert cli.main(["bench"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def test_a_verb_whose_extra_is_missing_names_its_packages(capsys, monkeypatch):
    def import_module(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli.importlib, "import_module", import_module)
    assert cli.main(["compress"]) == 2
    assert "pip install matplotlib torch pyyaml" in capsys.readouterr().err


def test_a_reader_that_leaves_is_not_a_crash():
    process = subprocess.Popen(
        [sys.executable, "-m", "paredown.cli.main", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_folder_that_is_not_there_exits_with_2_everywhere():
    for words in (["generate", "x", "-m", "no/such"], ["chat", "no/such"], ["serve", "no/such"]):
        done = run(*words, "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["type"] == "HubError"
        assert "Traceback" not in done.stderr


def test_a_full_disk_below_stdout_is_an_error_of_one_line():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "paredown.cli.main", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("paredown: the output could not be written")
    assert done.stderr.count("\n") == 1


def test_other_errors_of_the_system_are_bugs_and_seen_as_such(verb):
    def fail(args):
        raise FileNotFoundError(2, "No such file")

    verb(fail)
    with pytest.raises(FileNotFoundError):
        cli.main(["bench"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty_ones(closed):
    command = f'exec "{sys.executable}" -m paredown.cli.main generate -m draft {closed}'
    words = ["sh", "-c", f"{command} --max-tokens 2 --threads 1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
