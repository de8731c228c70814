"""
Bill of materials (CycloneDX 1.6, JSON) or a table of licences of what is installed beside Tonnage.

    python deploy/sbom.py > sbom.cdx.json
    python deploy/sbom.py --licences

Lists Tonnage and everything it needs, not what else happens to be installed. The same environment gives the same bytes;
SOURCE_DATE_EPOCH is the time it carries.
"""

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

ROOT = "tonnage"
SPDX = {
    "MIT License": "MIT",
    "MIT": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Licences as classifiers and free text name them."""


def name_of(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def installed(root: str = ROOT) -> dict[str, tuple[Distribution, list[str]]]:
    """Distributions that the root needs, itself first, with the names each needs directly."""
    found: dict[str, tuple[Distribution, list[str]]] = {}
    waiting = [(root, frozenset({""}))]
    while waiting:
        name, extras = waiting.pop()
        if name in found:
            continue
        try:
            here = distribution(name)
        except PackageNotFoundError:
            continue
        needs = [Requirement(text) for text in here.requires or []]
        needs = [n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)]
        found[name] = (here, sorted({name_of(n.name) for n in needs}))
        waiting += [(name_of(n.name), frozenset({"", *n.extras})) for n in needs]
    return found


def licence_of(here: Distribution) -> str:
    """SPDX expression as far as the metadata tells, else "unknown"."""
    stated = here.metadata["License-Expression"]
    if stated:
        return str(stated)
    for classifier in here.metadata.get_all("Classifier") or []:
        if classifier.startswith("License :: OSI Approved :: "):
            return SPDX.get(classifier.rpartition(" :: ")[2], classifier.rpartition(" :: ")[2])
    text = (here.metadata["License"] or "unknown").strip().splitlines()[0]
    return SPDX.get(text, text)


def component(name: str, here: Distribution, kind: str) -> dict[str, object]:
    purl = f"pkg:pypi/{name}@{here.version}"
    licence = licence_of(here)
    known = re.fullmatch(r"[A-Za-z0-9.+() -]+", licence) and licence != "unknown" and " License" not in licence
    licences = [{"expression": licence}] if known else [{"license": {"name": licence}}]
    return {
        "type": kind, "bom-ref": purl, "name": name, "version": here.version, "purl": purl, "licenses": licences,
    }  # fmt: skip


def bill() -> dict[str, object]:
    """The whole document."""
    found = installed()
    components = {
        name: component(name, here, "application" if name == ROOT else "library") for name, (here, _) in found.items()
    }
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    libraries = [components[name] for name in sorted(components) if name != ROOT]
    dependencies = [
        {
            "ref": components[name]["bom-ref"],
            "dependsOn": sorted(str(components[n]["bom-ref"]) for n in needs if n in components),
        }
        for name, (_, needs) in sorted(found.items())
    ]
    body = {"components": libraries, "dependencies": dependencies}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([components[ROOT], body], sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": moment.isoformat().replace("+00:00", "Z"), "component": components[ROOT]},
        **body,
    }


def licences() -> str:
    """Table of name, version and licence."""
    rows = sorted((name, here.version, licence_of(here)) for name, (here, _) in installed().items())
    return "".join(
        f"| {' | '.join(row)} |\n" for row in [("package", "version", "licence"), ("---", "---", "---"), *rows]
    )


if __name__ == "__main__":
    sys.stdout.write(licences() if "--licences" in sys.argv else json.dumps(bill(), indent=1) + "\n")
