"""Addresses, keys, and what a teacher is sent."""

import asyncio

import pytest

from fakes.teacher_server import Fault, running_teacher
from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.request import TeacherRequest, question
from paredown.distill.black_box.teacher import Failure, Teacher, TeacherConfig
from paredown.errors import ConfigError

KEY = "sk-very-secret-1234"
REQUEST = TeacherRequest(model="big", messages=question("2 + 2?"), max_tokens=9, temperature=0.0)


def ask(config: TeacherConfig) -> Answer | Failure:
    async def once() -> Answer | Failure:
        teacher = Teacher(config, 1)
        try:
            return await teacher.ask(REQUEST)
        finally:
            await teacher.close()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000/", "http://localhost:8000/v1/chat/completions"),
        ("https://a.example/v1/", "https://a.example/v1/chat/completions"),
        ("https://a.example/openai/v1", "https://a.example/openai/v1/chat/completions"),
    ],
)
def test_an_address_has_v1_where_it_has_no_path(address: str, url: str) -> None:
    assert TeacherConfig(address=address, model="m").url() == url


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:8000",
        "ftp://a",
        "http://",
        "file:///etc/passwd",
        "http://a/?key=1",
        "http://[",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not the address"):
        TeacherConfig(address=address, model="m")


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        TeacherConfig(address=f"https://me:{KEY}@a.example", model="m")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("value", [None, "", "  ", "sk-\x07", "sk-é"])
def test_a_variable_without_a_key_is_told_without_it(value, monkeypatch) -> None:
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEACHER_KEY", value)
    with pytest.raises(ConfigError, match="TEACHER_KEY") as raised:
        TeacherConfig(address="http://a", model="m", api_key_variable="TEACHER_KEY").key()
    assert "sk-" not in str(raised.value)


def test_the_key_is_sent_and_never_told(monkeypatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    body = f'{{"error": {{"message": "wrong key: {KEY}"}}}}'.encode()
    with running_teacher(faults=[Fault(status=401, body=body)]) as teacher:
        config = TeacherConfig(address=teacher.url, model="big", api_key_variable="TEACHER_KEY")
        found = ask(config)
        assert teacher.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert isinstance(found, Failure)
    assert found.detail == "wrong key: ***"
    assert KEY not in repr(config)


def test_keys_and_proxies_of_other_programs_are_not_used(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with running_teacher() as teacher:
        found = ask(TeacherConfig(address=teacher.url, model="big"))
        assert isinstance(found, Answer)
        assert "Authorization" not in teacher.headers[0]
        assert teacher.bodies == [
            {
                "model": "big",
                "messages": [{"role": "user", "content": "2 + 2?"}],
                "max_tokens": 9,
                "temperature": 0.0,
            }
        ]


def test_an_answer_without_end_is_garbage(monkeypatch) -> None:
    monkeypatch.setattr("paredown.distill.http.bounded_body._MAX_BYTES", 1000)
    with running_teacher(reply=lambda prompt: "x" * 2000) as teacher:
        found = ask(TeacherConfig(address=teacher.url, model="big"))
    assert isinstance(found, Failure)
    assert found.reason == "garbage"
    assert found.may_have_cost


@pytest.mark.parametrize(
    ("status", "may_retry", "ends_all", "may_have_cost"),
    [
        (429, True, False, False),
        (408, True, False, True),
        (500, True, False, True),
        (502, True, False, True),
        (503, True, False, False),
        (504, True, False, True),
        (400, False, False, False),
        (403, False, True, False),
        (302, False, True, False),
    ],
)
def test_what_a_status_means(
    status: int, may_retry: bool, ends_all: bool, may_have_cost: bool
) -> None:
    with running_teacher(faults=[Fault(status=status, body=b"\xffno")]) as teacher:
        found = ask(TeacherConfig(address=teacher.url, model="big"))
    assert found == Failure(
        reason=f"status {status}",
        detail="",
        may_retry=may_retry,
        ends_all=ends_all,
        may_have_cost=may_have_cost,
    )


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_in_which_nothing_comes_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError):
        TeacherConfig(address="http://a", model="m", timeout_s=timeout_s)
    with pytest.raises(ConfigError, match="no name"):
        TeacherConfig(address="http://a", model="")
