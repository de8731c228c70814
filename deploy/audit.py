"""
Known vulnerabilities of what is pinned, as pip-audit finds them: `make audit`.

    python deploy/audit.py requirements/run.txt requirements/build.txt

Ends with 1 when there are any. Where no advisory database answers it says "not run" and ends with 0: a machine without a
network is no reason to fail, and pip-audit by itself calls pins that it could not look up free of known vulnerabilities.
"""

import json
import subprocess
import sys
from pathlib import Path

OPTIONS = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]


def audited(pins: Path) -> tuple[list[dict[str, object]], str]:
    """What the database knows of each pin, and the last thing that was said about a failure."""
    command = [sys.executable, "-m", "pip_audit", *OPTIONS, "-r", str(pins)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    try:
        return json.loads(ended.stdout)["dependencies"], said
    except (ValueError, KeyError):
        return [], said


def report(pins: Path) -> int:
    """Print one line for a file of pins, and one for each vulnerability; how many there are."""
    found, said = audited(pins)
    known = [entry for entry in found if "skip_reason" not in entry]
    if not known:
        reason = f"it knows none of {len(found)} packages" if found else said
        print(f"not run: {pins}: no advisory database answers here: {reason}")
        return 0
    lines = [
        f"{entry['name']} {entry['version']}: {advisory['id']}, mended in {', '.join(advisory['fix_versions']) or 'none'}"
        for entry in known
        for advisory in entry["vulns"]
    ]
    unknown = f", {len(found) - len(known)} are not known to the database" if len(known) < len(found) else ""
    print(f"{pins}: {len(known)} packages looked up, {len(lines)} known vulnerabilities{unknown}")
    print("".join(f"  {line}\n" for line in lines), end="")
    return len(lines)


if __name__ == "__main__":
    sys.exit(int(sum(report(Path(name)) for name in sys.argv[1:]) > 0))
