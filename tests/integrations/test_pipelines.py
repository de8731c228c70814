"""The snippets for pipelines are valid by their publishers' schemas, and their scripts do what they say."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

SCHEMAS = {
    "examples/ci/github-actions.yml": "vendor.github-workflows",
    "examples/ci/gitlab-ci.yml": "vendor.gitlab-ci",
    ".github/workflows/ci.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    "deploy/compose.yaml": "vendor.compose-spec",
}


@pytest.mark.parametrize("path", SCHEMAS)
def test_it_is_valid_by_the_publishers_schema(repository, path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path], str(repository / path)]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.fixture
def sizing(examples, tmp_path):
    """A repository with cards, as the snippets expect it."""
    shutil.copytree(examples / "cards", tmp_path / "sizing")
    return tmp_path


def with_gpu(folder, card, gpu):
    path = folder / "sizing" / card
    path.write_text(json.dumps({**json.loads(path.read_text()), "placement": {"gpu": gpu}}))


def github_steps(examples):
    workflow = yaml.safe_load((examples / "ci" / "github-actions.yml").read_text())
    return [step["run"] for step in workflow["jobs"]["size"]["steps"] if "run" in step]


def test_the_github_job_passes_and_writes_a_summary(examples, sizing, shell):
    results = [shell(step, cwd=sizing, shell="sh", GITHUB_STEP_SUMMARY="summary.md") for step in github_steps(examples)]

    assert [0, 0] == [result.returncode for result in results], [result.stderr for result in results]
    assert 2 == (sizing / "summary.md").read_text().count("GPU memory: met")


def test_the_github_job_fails_when_the_card_outgrows_its_gpu(examples, sizing, shell):
    with_gpu(sizing, "serving.json", "t4")
    with_gpu(sizing, "fine-tuning.json", "rtx-2060")

    results = [shell(step, cwd=sizing, shell="sh", GITHUB_STEP_SUMMARY="summary.md") for step in github_steps(examples)]

    assert [3, 3] == [result.returncode for result in results]


def test_the_gitlab_job_keeps_a_picture_and_a_verdict(examples, sizing, shell):
    job = yaml.safe_load((examples / "ci" / "gitlab-ci.yml").read_text())["gpu-sizing"]

    for line in job["script"]:
        assert 0 == shell(line, cwd=sizing).returncode

    assert set(job["artifacts"]["paths"]) <= {path.name for path in sizing.iterdir()}
    assert "met" == json.loads((sizing / "fine-tuning.json").read_text())["verdict"]
    assert (sizing / "memory.svg").read_text().startswith("<svg")
