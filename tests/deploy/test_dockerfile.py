"""The image's recipe is lint-clean and agrees with the settings."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tonnage.api.settings import Settings


def test_hadolint_is_clean(repository):
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))

    result = subprocess.run([hadolint, repository / "Dockerfile"], capture_output=True, text=True, check=False)

    assert "" == result.stdout + result.stderr


def test_environment_of_the_image_is_known_to_the_settings(repository):
    names = set(re.findall(r"TONNAGE_([A-Z_]+)=", (repository / "Dockerfile").read_text()))

    assert names
    assert names <= {f.upper() for f in Settings.__struct_fields__}


def test_image_runs_as_a_user_and_checks_its_health(repository):
    text = (repository / "Dockerfile").read_text()

    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)
    assert "/healthz" in text
    assert 2 == len(re.findall(r"^FROM ", text, re.MULTILINE))
