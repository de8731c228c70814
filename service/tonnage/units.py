"""
Bytes and the only place that knows what a prefix is worth.

Inside Tonnage every amount of memory is an `int` of bytes. Prefixes exist where a person or a
catalogue writes them: `parse_size` on the way in, `format_size` on the way out.
"""

import re
from decimal import Decimal

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40

BILLION = 10**9
MILLION = 10**6

_PREFIXES = {
    "B": 1,
    "KB": KB, "MB": MB, "GB": GB, "TB": TB,
    "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))? ?([A-Za-z]{1,4})", re.ASCII)
_BARE = {"K": ("KB", "KiB"), "M": ("MB", "MiB"), "G": ("GB", "GiB"), "T": ("TB", "TiB")}

SIZE_PATTERN = r"^\d{1,15}(\.\d{1,9})? ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$(?!\n)"


def parse_size(text: int | str) -> int:
    """
    Bytes of a size written by a person.

    Args:
        text: Plain bytes, or a number with an explicit unit such as "6 GiB" or "24 GB".

    Returns:
        Size, rounded up to a whole byte. [bytes]

    Raises:
        ValueError: No unit, or one that could mean 10^n or 2^n.

    Source:
        IEC 80000-13 (binary prefixes); SOURCES.md C: 1 GB = 10^9 bytes, 1 GiB = 2^30 bytes
    """
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: write bytes or a number with a unit, such as '6 GiB' or '24 GB'")
    whole, fraction, unit = match.groups()
    factor = _PREFIXES.get(unit)
    if factor is None:
        raise ValueError(_unit_complaint(text, whole, fraction, unit))
    amount = Decimal(f"{whole}.{fraction or 0}") * factor
    return ceil_div(int(amount * BILLION), BILLION)


def _unit_complaint(text: str, whole: str, fraction: str | None, unit: str) -> str:
    number = whole if fraction is None else f"{whole}.{fraction}"
    readings = _BARE.get(unit.upper())
    if readings is None:
        return f"{text!r} has an unknown unit {unit!r}: use one of {', '.join(_PREFIXES)}"
    decimal, binary = (parse_size(f"{number} {name}") for name in readings)
    first, second = (
        f"'{number} {name}' is {amount} bytes" for name, amount in zip(readings, (decimal, binary), strict=True)
    )
    return f"{text!r} is ambiguous: {first}, {second}"


def format_size(amount: int) -> str:
    """
    Size for a person, always with its unit.

    Args:
        amount: Size; may be negative (headroom). [bytes]

    Returns:
        Text such as "13.04 GiB".
    """
    size = abs(amount)
    if GiB <= size < 10 * TiB:
        return f"{amount / GiB:.2f} GiB"
    for unit, factor in (("TiB", TiB), ("MiB", MiB), ("KiB", KiB)):
        if size >= factor:
            return f"{amount / factor:.2f} {unit}"
    return f"{amount} B"


def ceil_div(dividend: int, divisor: int) -> int:
    """Quotient rounded up; demands round up, capacities round down. [unitless]"""
    return -(-dividend // divisor)


def round_up(amount: int, multiple: int) -> int:
    """Smallest multiple of `multiple` that holds `amount`. [unit of amount]"""
    return -(-amount // multiple) * multiple
