"""Launchers' files say what the answer says; SkyPilot's, dstack's and Ray's own checks run where those are installed."""

import importlib
import json
import re
import shlex
import subprocess
import sys

import httpx
import pytest
import yaml
from tests.waiting import SECONDS


@pytest.fixture(scope="module")
def answer(service, examples):
    card = json.loads((examples / "cards" / "order.json").read_text())
    return httpx.post(f"{service}/fit", json=card, timeout=SECONDS).json()


@pytest.fixture(scope="module")
def candidate(answer):
    return answer["selected"] or answer["candidates"][0]


@pytest.fixture
def made(examples, answer, commands):
    def run(launcher, *options, answer=answer):
        command = [sys.executable, str(examples / "launchers" / "from_fit.py"), launcher, *options]
        return subprocess.run(
            command, input=json.dumps(answer), env=commands, capture_output=True, text=True, check=False
        )

    return run


def document(result):
    assert 0 == result.returncode, result.stderr
    return yaml.safe_load(result.stdout)


def test_skypilot_gets_gpus_hosts_and_the_command(made, candidate):
    task = document(made("skypilot", "--first"))

    assert {"H100", "H200"} > set(task["resources"]["accelerators"])
    assert [candidate["gpus_per_host"]] == list(task["resources"]["accelerators"].values())
    assert candidate["hosts"] == task["num_nodes"]
    assert " ".join(candidate["launch"]["command"]) == task["run"].strip()


def test_dstack_gets_gpus_and_the_command(made, candidate):
    service = document(made("dstack", "--first"))

    assert candidate["gpus_per_host"] == service["resources"]["gpu"]["count"]
    assert [" ".join(candidate["launch"]["command"])] == service["commands"]


def test_ray_serve_gets_the_flags_as_arguments(made, candidate):
    (application,) = document(made("ray-serve", "--first"))["applications"]
    (config,) = application["args"]["llm_configs"]

    assert 8192 == config["engine_kwargs"]["max_model_len"]
    assert candidate["placement"]["tensor_parallel_size"] == config["engine_kwargs"].get("tensor_parallel_size", 1)


def test_a_setting_of_several_words_reaches_every_launcher_whole(made, service, examples):
    card = json.loads((examples / "cards" / "order.json").read_text())
    drafted = {"method": "ngram", "num_speculative_tokens": 3}
    card["serving"] |= {"speculative": drafted, "enable_prefix_caching": False}
    answer = httpx.post(f"{service}/fit", json=card).json()
    (application,) = document(made("ray-serve", "--first", answer=answer))["applications"]
    arguments = application["args"]["llm_configs"][0]["engine_kwargs"]
    task = shlex.split(document(made("skypilot", "--first", answer=answer))["run"])

    assert (drafted, False) == (arguments["speculative_config"], arguments["enable_prefix_caching"])
    assert drafted == json.loads(task[task.index("--speculative-config") + 1])


def test_nothing_is_launched_that_is_not_selected(made, answer):
    undecided = {**answer, "selected": None, "confirmations": ["disk: unknown"]}

    result = made("skypilot", answer=undecided)

    assert (2, "nothing is selected:\n  disk: unknown\n") == (result.returncode, result.stderr)


def test_skypilot_itself_accepts_it(made):
    schemas = optional("sky.utils.schemas")

    jsonschema = importlib.import_module("jsonschema")
    jsonschema.validate(document(made("skypilot", "--first")), schemas.get_task_schema())


def test_dstack_itself_accepts_it(made):
    configurations = optional("dstack._internal.core.models.configurations")

    configurations.parse_run_configuration(document(made("dstack", "--first")))


def test_ray_itself_accepts_it(made):
    schema = optional("ray.serve.schema")

    schema.ServeDeploySchema.model_validate(document(made("ray-serve", "--first")))


def test_the_documents_name_the_versions_that_are_pinned(repository):
    pins = dict(re.findall(r"(?m)^([a-z]+)==(\S+)", (repository / "requirements" / "extras.txt").read_text()))
    pages = "".join((repository / "docs" / f"{name}.md").read_text() for name in ("integrations", "cli"))
    named = re.findall(r"\b(SkyPilot|dstack|Ray)\s+(\d+\.\d+\.\d+)", pages)

    assert {"SkyPilot", "dstack", "Ray"} == {name for name, _ in named}
    assert [] == [(name, version) for name, version in named if pins[name.lower()] != version]


def optional(module):
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"not run: {error.name} is not installed (make test-extras)")
