"""The bound on what a request costs is the one that docs/guide/black_box.md tells."""

from paredown.distill.black_box.request import TeacherRequest


def test_a_request_costs_at_most_its_bytes_its_messages_and_its_answer() -> None:
    messages = ({"role": "system", "content": "Zoë"}, {"role": "user", "content": "東京?"})
    request = TeacherRequest(model="m", messages=messages, max_tokens=50, temperature=0.0)
    assert request.most_tokens == (4 + 7) + 2 * 16 + 256 + 50
