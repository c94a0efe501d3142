"""The widths that remain after a cut: multiples that kernels, quantized groups and other programs
work well with."""

from paredown.errors import ConfigError

# The largest one that comes near enough to what was asked is taken.
MULTIPLES = (128, 64, 32)
# How far the width may lie from the one asked for, as a share of the width before.
_TOLERANCE = 0.02


def check_share(share: float) -> None:
    """Raises ConfigError for a share outside [0, 1)."""
    if not 0 <= share < 1:
        raise ConfigError(
            "a share to remove lies outside [0, 1)",
            seen=f"{share:g}",
            remedy="Give a number from 0 to below 1: 0.25 removes a quarter.",
        )


def remaining_width(width: int, share: float, multiple_of: int | None = None) -> int:
    """Returns the width after a share of it is removed: a multiple of 128 where one lies within 2 %
    of the width that was asked for, else of 64, else of 32; of two as near the larger.
    `multiple_of` fixes the multiple, as the K-quants of GGUF need (256).

    Raises ConfigError where every multiple would remove nothing, or everything.
    """
    check_share(share)
    if share == 0:
        return width
    wanted = width * (1 - share)
    multiples = MULTIPLES if multiple_of is None else (multiple_of,)
    for multiple in multiples:
        found = multiple * int(wanted / multiple + 0.5)
        is_last = multiple == multiples[-1]
        if 0 < found < width and (is_last or abs(found - wanted) <= _TOLERANCE * width):
            return found
    smallest = multiples[-1]
    raise ConfigError(
        f"no multiple of {smallest} is near the width that the share leaves",
        seen=f"{share:.3%} of {width} removed leaves {wanted:g}",
        remedy=f"Choose a share that leaves a multiple of {smallest} below {width}, and not 0.",
    )


def remaining_count(num: int, share: float, what: str, least: int = 1) -> int:
    """Returns how many of `num` units ("key-value heads") remain: the count nearest to the share,
    the larger of two. Raises ConfigError where that removes none of them, or leaves fewer than
    `least`."""
    check_share(share)
    if share == 0:
        return num
    found = -int(-num * (1 - share) // 1) if num * share % 1 == 0.5 else round(num * (1 - share))
    if found == num:
        raise ConfigError(
            f"the share removes none of the {what}",
            seen=f"{share:.3%} of {num}",
            remedy=f"Removing one of them takes a share above {0.5 / num:.3%}.",
        )
    if found < least:
        raise ConfigError(
            f"the share leaves too few {what}",
            seen=f"{found} of {num}; {least} must stay",
            remedy=f"Choose a share of at most {1 - least / num:.3%}.",
        )
    return found
