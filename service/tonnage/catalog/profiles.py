"""Engine and framework files -> profiles with their releases, by the Struct that goes with each."""

import importlib
import importlib.util
import re
from typing import Any

import msgspec

from tonnage.catalog.files import Layers, Record
from tonnage.spec.engine import Profile, carried_over, version_key

_HEADER = {f.name for f in msgspec.structs.fields(Profile)}


def release_type(area: str, profile_id: str) -> type[Any] | None:
    """Struct of an engine's or framework's releases, None when there is none for it. [unitless]"""
    stem = re.sub(r"[^a-z0-9]", "_", profile_id.lower())
    for module in (f"tonnage.spec.{area}.{stem}", f"tonnage.spec.{area.removesuffix('s')}"):
        if _exists(module):
            release: type[Any] | None = getattr(importlib.import_module(module), "RELEASE", None)
            if release is not None:
                return release
    return None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def read_profiles(layers: Layers, area: str) -> list[Profile]:
    """Profiles of an area; what is wrong with them goes to the layers' problems. [unitless]"""
    profiles = (_profile(layers, area, record) for record in layers.profiles[area].values())
    return [p for p in profiles if p is not None]


def _profile(layers: Layers, area: str, record: Record) -> Profile | None:
    profile_id = record.fields["id"]
    found = release_type(area, profile_id)
    if found is None:
        layers.problems.append(f"{record.file}: no tonnage.spec.{area} module defines RELEASE for {profile_id!r}")
        return None
    unknown = sorted(set(record.fields) - _HEADER)
    if unknown:
        layers.problems.append(f"{record.file}: unknown field {unknown[0]!r} in the head of the file")
        return None
    try:
        head = {"name": profile_id, **record.fields}
        tables = sorted(head.pop("releases"), key=lambda table: version_key(str(table.get("since"))))
        releases = tuple(_release(fields, found) for fields in carried_over(tables))
        profile = msgspec.convert(head, Profile)
    except msgspec.ValidationError as error:
        layers.problems.append(f"{record.file}: {error}")
        return None
    profile = msgspec.structs.replace(profile, releases=releases)
    layers.problems += [f"{record.file}: {problem}" for problem in _order_problems(profile)]
    return profile


def _release(fields: dict[str, Any], found: type[Any]) -> Any:
    try:
        return msgspec.convert(fields, found)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"release {fields.get('since')!r}: {error}") from error


def _order_problems(profile: Profile) -> list[str]:
    if not profile.releases:
        return ["no [[release]]"]
    pairs = list(zip(profile.releases, profile.releases[1:], strict=False))
    problems = [
        f"releases {a.since} and {b.since} begin with the same version"
        for a, b in pairs
        if version_key(a.since) == version_key(b.since)
    ]
    problems += [f"release {b.since} is dated before {a.since}" for a, b in pairs if b.since_date < a.since_date]
    newest = profile.releases[-1]
    if version_key(profile.known_until)[: len(version_key(newest.since))] < version_key(newest.since):
        problems.append(f"known_until {profile.known_until} lies before the newest release {newest.since}")
    return problems
