"""The page about real models, out of the JSON that a run writes."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.real.row import Section

_HEADING = (
    "# Real models",
    "",
    "Measured by `make real` on the models that benchmarks/real/packages.txt names. A row that",
    "decides must meet what is asked for `make real` to pass; the others are aims.",
)
_MARKS = {True: "yes", False: "**no**", None: ""}


def as_json(sections: Sequence[Section], machine: Mapping[str, Any]) -> dict[str, Any]:
    return {"machine": dict(machine), "sections": [asdict(section) for section in sections]}


def merge(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a new run in the place of those of the same title; the others stay, each with
    the machine that it was measured on."""
    kept = [] if old is None else list(old["sections"])
    titles = [section["title"] for section in kept]
    for section in new["sections"]:
        measured = {**section, "machine": new["machine"]}
        if section["title"] in titles:
            kept[titles.index(section["title"])] = measured
        else:
            kept.append(measured)
    return {"sections": kept}


def markdown(document: Mapping[str, Any], heading: Sequence[str] = _HEADING) -> str:
    lines = [*heading]
    for section in document["sections"]:
        machine = section["machine"]
        protocol = textwrap.fill(section["protocol"], 120, break_on_hyphens=False)
        lines += ["", f"## {section['title']}", "", protocol, ""]
        lines += ["| | asked | found | met | decides |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {row['name']} | {row['asked']} | {row['found']} | {_MARKS[row['meets']]} | "
            f"{'yes' if row['decides'] else ''} |"
            for row in section["rows"]
        ]
        lines += [
            "",
            f"{machine['date']}, commit {machine['commit']}, {machine['name']}, "
            f"{machine['num_threads']} threads, {machine['isa']}.",
        ]
    return "\n".join(lines) + "\n"
