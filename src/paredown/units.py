"""Decimal and binary multiples, and how quantities are printed. Floor 0: imports nothing."""

KILO = 1_000
MEGA = 1_000_000
GIGA = 1_000_000_000
TERA = 1_000_000_000_000

KIBI = 1 << 10
MEBI = 1 << 20
GIBI = 1 << 30


def format_bytes(num_bytes: float) -> str:
    """`num_bytes` in decimal units: 1234567 -> '1.23 MB'."""
    return _format_scaled(num_bytes, "B")


def format_rate(per_s: float, unit: str) -> str:
    """A rate in decimal units: (4.2e9, 'B/s') -> '4.20 GB/s'."""
    return _format_scaled(per_s, unit)


def _format_scaled(value: float, unit: str) -> str:
    for scale, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.2f} {prefix}{unit}"
    return f"{value:.0f} {unit}"
