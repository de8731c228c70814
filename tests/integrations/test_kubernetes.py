"""The scheduler-side script sets GPUs, affinity and memory from answers, and nothing where nothing is met."""

import json
import subprocess
import sys

import httpx
import pytest
import yaml


@pytest.fixture
def sized(examples, service, commands):
    def run(gpus, text=None):
        script = examples / "kubernetes" / "size_manifest.py"
        text = text or (examples / "kubernetes" / "deployment.yaml").read_text()
        command = [sys.executable, str(script), "--service", service, "--gpus", gpus]
        return subprocess.run(command, input=text, env=commands, capture_output=True, text=True, check=False)

    return run


def test_the_smallest_number_of_gpus_is_set_with_the_nodes_that_have_them(sized):
    result = sized("l40s,a100-80-sxm,h100-sxm")
    manifest = yaml.safe_load(result.stdout)
    pod = manifest["spec"]["template"]["spec"]
    resources = pod["containers"][0]["resources"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert "1" == resources["limits"]["nvidia.com/gpu"]
    assert 30_000 < int(resources["requests"]["memory"].removesuffix("Mi")) < 200_000
    assert ["NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"] == term["matchExpressions"][0]["values"]
    assert {"a100-80-sxm", "h100-sxm", "gpus"} == set(json.loads(manifest["metadata"]["annotations"]["tonnage/answer"]))


def test_several_small_gpus_are_taken_where_one_does_not_do(sized):
    manifest = yaml.safe_load(sized("l40s,a10g").stdout)
    resources = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]

    assert "2" == resources["limits"]["nvidia.com/gpu"]


def test_the_result_is_a_valid_object(sized, tmp_path):
    (tmp_path / "sized.yaml").write_text(sized("h100-sxm").stdout)
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", "1.37", str(tmp_path / "sized.yaml")]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, result.stdout + result.stderr


def test_nothing_is_scheduled_that_is_not_met(sized):
    result = sized("t4")

    assert (3, "") == (result.returncode, result.stdout)


def test_a_workload_without_a_card_is_named(sized):
    result = sized("l40s", "kind: Deployment\nmetadata: {name: x}\nspec: {}\n")

    assert (1, "no annotation tonnage/card\n") == (result.returncode, result.stderr)


@pytest.mark.parametrize(
    ("gpu", "count", "serving"),
    [
        ("h100-sxm", 8, {"engine": "vllm", "speculative": {"method": "ngram", "num_speculative_tokens": 3}}),
        ("h100-sxm:3g.40gb", 1, {"engine": "vllm", "use_v2_model_runner": True}),
        ("mi300x", 2, {"engine": "sglang"}),
        ("gaudi3", 1, {"engine": "tgi"}),
        ("l40s", 1, {"engine": "tensorrt-llm"}),
    ],
)
def test_the_pod_of_a_candidate_is_one_that_kubernetes_takes(service, tmp_path, gpu, count, serving):
    offer = {"inline": [{"id": "one", "gpu": gpu, "gpus_per_host": count}], "catalog": False}
    card = {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"max_model_len": 8192} | serving, "offer": offer}
    (candidate,) = httpx.post(f"{service}/fit", json=card).json()["candidates"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "engine"}, "spec": candidate["launch"]["kubernetes"]}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", "1.37", str(tmp_path / "pod.yaml")]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, result.stdout + result.stderr
