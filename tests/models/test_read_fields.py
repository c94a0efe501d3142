"""Fields remember what was asked of them, and of the objects in them."""

from paredown.models.families.read_fields import ReadFields

VALUES = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": None}


def test_what_nobody_asked_for_is_told_by_its_whole_name() -> None:
    fields = ReadFields(VALUES)
    assert fields.unread() == VALUES
    assert fields["a"] == 1
    inner = fields["b"]
    assert isinstance(inner, ReadFields)
    assert fields.unread() == {"b.c": 2, "b.d": {"e": 3}, "f": None}
    assert inner.get("c") == 2
    assert fields.get("f", 7) is None
    assert fields.get("g", 7) == 7
    assert fields.unread() == {"b.d": {"e": 3}}


def test_asking_whether_a_field_is_there_is_asking_for_it() -> None:
    fields = ReadFields(VALUES)
    assert "a" in fields
    assert "g" not in fields
    assert "a" not in fields.unread()


def test_what_is_passed_over_is_read_with_all_that_is_in_it() -> None:
    fields = ReadFields(VALUES)
    fields.pass_over("b")
    fields.pass_over("g")
    assert fields.unread() == {"a": 1, "f": None}


def test_names_and_plain_values_do_not_count() -> None:
    fields = ReadFields(VALUES)
    assert list(fields) == ["a", "b", "f"]
    assert len(fields) == 3
    assert fields.objects() == ["b"]
    assert fields.plain()["a"] == 1
    assert repr(fields) == repr(VALUES)
    assert fields.unread() == VALUES


def test_changes_stand_in_the_place_of_fields_and_count_as_nobodys() -> None:
    fields = ReadFields(VALUES)
    changed = fields.overlaid({"a": 5, "g": {"h": 6}})
    assert changed["a"] == 5
    assert changed["g"] == {"h": 6}
    assert set(changed) == {"a", "b", "f", "g"}
    assert len(changed) == 4
    assert changed.objects() == ["g", "b"]
    assert fields.unread() == VALUES
    assert changed.overlaid({"a": 8})["a"] == 8
    assert changed["f"] is None
    assert fields.unread() == {"a": 1, "b": VALUES["b"]}
