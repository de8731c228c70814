"""A client generated from the committed description talks to a live service, in both directions of right and wrong."""

import importlib
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def client(repository, service, tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    command = [
        sys.executable, "-m", "openapi_python_client", "generate", "--path", str(repository / "openapi" / "openapi.json"),
        "--meta", "none", "--output-path", str(folder / "generated_tonnage"),
    ]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == made.returncode, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    try:
        package = importlib.import_module("generated_tonnage")
        yield package.Client(base_url=service)
    finally:
        sys.path.remove(str(folder))


def test_a_card_goes_out_typed_and_an_estimate_comes_back_typed(client):
    models = importlib.import_module("generated_tonnage.models")
    post = importlib.import_module("generated_tonnage.api.estimate.post_estimate")
    card = models.SizingCard(
        model="Qwen/Qwen3-8B",
        serving=models.Vllm(engine="vllm", max_model_len=8192),
        placement=models.Placement(gpu="l40s"),
    )

    answer = post.sync(client=client, body=card)

    assert isinstance(answer, models.Estimate)
    assert "met" == str(answer.verdict)
    assert answer.required.low <= answer.required.expected <= answer.required.high


def test_query_parameters_are_typed_too(client):
    get = importlib.import_module("generated_tonnage.api.estimate.get_estimate")

    answer = get.sync(client=client, model="Qwen/Qwen3-8B", engine="vllm", max_model_len=8192, gpu="l40s")

    assert "met" == str(answer.verdict)


def test_a_refusal_comes_back_as_a_problem(client):
    models = importlib.import_module("generated_tonnage.models")
    post = importlib.import_module("generated_tonnage.api.estimate.post_estimate")

    answer = post.sync(client=client, body=models.SizingCard(model="nobody/nothing"))

    assert isinstance(answer, models.Problem)
    assert (422, "/problems/unknown-name") == (answer.status, answer.type_)


def test_the_catalogue_is_read_by_page(client):
    listing = importlib.import_module("generated_tonnage.api.catalog.get_catalog_gpus")

    page = listing.sync(client=client, q="l40s", limit=1)

    assert ["l40s"] == [row.id for row in page.items]
