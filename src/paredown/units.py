"""Formats and parses quantities with decimal and binary multiples. Floor 0: imports nothing."""

import re
from collections.abc import Iterable

KILO = 1_000
MEGA = 1_000_000
GIGA = 1_000_000_000
TERA = 1_000_000_000_000

KIBI = 1 << 10
MEBI = 1 << 20
GIBI = 1 << 30


def format_bytes(num_bytes: float) -> str:
    """Formats `num_bytes` in decimal units: 1234567 -> '1.23 MB'."""
    return _format_scaled(num_bytes, "B")


def format_rate(per_s: float, unit: str) -> str:
    """Formats a rate in decimal units: (4.2e9, 'B/s') -> '4.20 GB/s'."""
    return _format_scaled(per_s, unit)


def parse_bytes(text: str) -> int:
    """Parses a number of bytes: '800000000', '800MB', '1.5 GB', '2GiB'. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i?)?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes")
    number, prefix = match.groups()
    scale = {"k": KILO, "m": MEGA, "g": GIGA, "t": TERA}
    binary = {"ki": KIBI, "mi": MEBI, "gi": GIBI, "ti": KIBI * GIBI}
    return int(float(number) * ((scale | binary)[prefix.lower()] if prefix else 1))


def _format_scaled(value: float, unit: str) -> str:
    for scale, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.2f} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def format_count(number: int, noun: str) -> str:
    """Formats (1, "request") as "1 request" and (1234, "request") as "1,234 requests"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_ranges(numbers: Iterable[int]) -> str:
    """Formats [0, 2, 3, 4] as "0, 2-4"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] + 1 == number:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def format_duration(seconds: float) -> str:
    """Formats 42.3 as "42 s", 200 as "3 min 20 s", 7500 as "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
