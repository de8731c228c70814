"""Which accelerators an engine or framework runs on, as its profile says."""

from functools import lru_cache

from tonnage.spec.engine import Hardware, Profile

ANY = Hardware(
    established=("nvidia", "amd"),
    possible=("intel", "google", "aws", "apple"),
    source="neither engine nor framework stated",
)


def runs(profile: Profile | None) -> Hardware:
    """Where the card's engine or framework runs."""
    return ANY if profile is None or profile.hardware is None else profile.hardware


@lru_cache(maxsize=256)
def capability(text: str | None) -> tuple[int, int] | None:
    """NVIDIA compute capability as numbers, None for other vendors' names. [unitless]"""
    if text is None:
        return None
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None
