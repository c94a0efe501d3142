"""Words of commands that people copy: a shell reads back what was put in."""

import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.hostile_text import HOSTILE
from paredown.shell_word import shell_path, shell_word
from paredown.shown import shown


@pytest.mark.parametrize("word", [one for one in HOSTILE if "\ud800" not in one])
def test_bash_reads_back_the_word(word: str) -> None:
    echo = ["bash", "-c", f"printf %s {shell_word(word)}"]
    assert subprocess.run(echo, capture_output=True, check=True).stdout == os.fsencode(word)


@given(st.text(st.characters(blacklist_categories=["C", "Z"])))
def test_what_can_be_seen_is_quoted_as_python_does(word: str) -> None:
    assert shlex.split(shell_word(word)) == [word]


@given(st.text(st.characters()))
def test_what_cannot_be_seen_stays_out_of_the_word(word: str) -> None:
    assert shell_word(word).isprintable()


def test_halves_of_characters_are_written_as_bytes() -> None:
    assert shell_word("\ud800\udcff") == r"$'\xed\xa0\x80\xff'"


@pytest.mark.parametrize("path", ["-rf", "--host=0.0.0.0", "-a b"])
def test_a_path_is_no_option(path: str) -> None:
    assert shlex.split(shell_path(path)) == [f"./{path}"]
    assert shown(shell_path("usual/folder")) == "usual/folder"
