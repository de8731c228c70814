"""What the chart makes does its work: its test pods ask, its keys and overlays load, its selectors select what they mean."""

import re
import subprocess
import sys

import pytest
import redis
import yaml
from tests.adapters.conftest import Server, valkey_binary
from tests.api.serving import serving
from tests.deploy.conftest import VALUES, of_kind

from tonnage.api.access import new_key, read_keys
from tonnage.api.settings import Settings
from tonnage.catalog import load_catalog

CUSTOM = ("gateway.networking.k8s.io", "monitoring.coreos.com")


def named(documents, kind, ending):
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].endswith(ending)]
    return found


@pytest.fixture
def helm_test(rendered):
    """The command of a test pod, put to a service that runs here."""

    def run(values, pod, service):
        (container,) = named(rendered[values], "Pod", pod)["spec"]["containers"]
        python, option, script = container["command"]
        assert ("python", "-c") == (python, option)
        here = script.replace("http://demo-tonnage:80", service)
        assert here != script
        command = [sys.executable, "-c", here]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_the_test_pod_of_an_open_service_gets_an_answer(helm_test):
    with serving() as service:
        result = helm_test("values-open.yaml", "answers", service.url)

    assert (0, "") == (result.returncode, result.stderr)


def test_the_test_pod_of_a_service_with_keys_is_refused_without_one(helm_test):
    _, line = new_key("ci", "estimate")
    with serving(api_keys=line) as service, serving() as careless:
        assert 0 == helm_test("values-keys.yaml", "answers", service.url).returncode
        assert "answers without one" in helm_test("values-keys.yaml", "answers", careless.url).stderr


def test_the_test_pod_of_the_cache_waits_until_it_is_used(helm_test, tmp_path):
    cache = Server(str(valkey_binary()), tmp_path).start()
    try:
        with serving(redis_url=cache.url) as service:
            assert 0 == helm_test("values-keys.yaml", "cache", service.url).returncode
    finally:
        cache.client().shutdown(nosave=True)


@pytest.mark.parametrize("values", VALUES)
def test_test_pods_are_no_replicas(rendered, values):
    """Neither the Service nor the limits of the service's own pods take them for one."""
    selectors = [d["spec"]["selector"] for d in of_kind(rendered[values], "Service")]
    selectors += [d["spec"]["selector"]["matchLabels"] for d in of_kind(rendered[values], "PodDisruptionBudget")]
    policies = [d for d in of_kind(rendered[values], "NetworkPolicy") if not d["metadata"]["name"].endswith("test")]
    selectors += [d["spec"]["podSelector"]["matchLabels"] for d in policies]
    pods = [d["metadata"]["labels"] for d in rendered[values] if d["kind"] == "Pod"]

    assert pods
    assert [] == [s for s in selectors for labels in pods if s.items() <= labels.items()]


def test_where_callers_are_named_the_test_pods_are_among_them(rendered):
    policy = named(rendered["values-full.yaml"], "NetworkPolicy", "demo-tonnage")
    peers = [
        peer["podSelector"]["matchLabels"] for peer in policy["spec"]["ingress"][0]["from"] if "podSelector" in peer
    ]
    pods = [d["metadata"]["labels"] for d in rendered["values-full.yaml"] if d["kind"] == "Pod"]

    assert all(any(peer.items() <= labels.items() for peer in peers) for labels in pods)


def test_test_pods_reach_the_service_and_nobody_else(rendered):
    documents = rendered["values-full.yaml"]
    policy = named(documents, "NetworkPolicy", "-test")["spec"]
    (deployment,) = of_kind(documents, "Deployment")
    names, service = policy["egress"]
    (peer,) = service["to"]
    pods = [d["metadata"]["labels"] for d in documents if d["kind"] == "Pod"]

    assert all(policy["podSelector"]["matchLabels"].items() <= labels.items() for labels in pods)
    assert peer["podSelector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert {53} == {port["port"] for port in names["ports"]}
    assert "ingress" not in policy


def test_the_monitor_finds_the_service_and_not_the_cache(rendered):
    documents = rendered["values-full.yaml"]
    (monitor,) = of_kind(documents, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [d for d in documents if d["kind"] == "Service" and wanted <= d["metadata"]["labels"].items()]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert ["demo-tonnage"] == [d["metadata"]["name"] for d in found]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    assert {"name": "metrics-token", "key": "token"} == endpoint["authorization"]["credentials"]


def test_keys_of_the_chart_are_keys_of_the_service(rendered, tmp_path):
    secret = named(rendered["values-keys.yaml"], "Secret", "keys")
    (deployment,) = of_kind(rendered["values-keys.yaml"], "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (tmp_path / "keys").write_text(secret["stringData"]["keys"])
    environment = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "auth"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "auth"]

    assert {"ci", "ops"} == {key.name for key in read_keys(Settings(api_keys_file=str(tmp_path / "keys"))).keys}
    assert secret["metadata"]["name"] == volume["secret"]["secretName"]
    assert f"{mount['mountPath']}/keys" == environment["TONNAGE_API_KEYS_FILE"]


def test_the_overlay_of_the_chart_is_one_of_the_service(rendered, tmp_path):
    for name, text in named(rendered["values-full.yaml"], "ConfigMap", "catalog")["data"].items():
        (tmp_path / name).write_text(text)

    assert "l40s" == load_catalog(tmp_path).packages.get("acme:l40s").gpu


def test_a_server_takes_the_arguments_of_the_bundled_cache(rendered, tmp_path):
    (container,) = named(rendered["values-full.yaml"], "Deployment", "valkey")["spec"]["template"]["spec"]["containers"]
    server = Server(str(valkey_binary()), tmp_path)
    server.run([str(valkey_binary()), "--port", str(server.port), *container["args"]])
    client: redis.Redis = server.start().client()
    try:
        settings = client.config_get("maxmemory*")

        assert ("67108864", "allkeys-lru") == (settings["maxmemory"], settings["maxmemory-policy"])
        assert "" == client.config_get("save")["save"]
    finally:
        client.shutdown(nosave=True)


def test_the_autoscaler_asks_for_the_metric_that_the_adapter_serves(repository, rendered):
    (scaler,) = of_kind(rendered["values-full.yaml"], "HorizontalPodAutoscaler")
    (asked,) = [m["pods"]["metric"]["name"] for m in scaler["spec"]["metrics"] if m["type"] == "Pods"]
    (rule,) = yaml.safe_load((repository / "deploy/prometheus/adapter.yaml").read_text())["rules"]["custom"]

    assert asked == rule["name"]["as"]


def documented(repository):
    text = (repository / "docs" / "deploying.md").read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_values_of_the_documents_make_valid_objects(repository, files, version, tmp_path):
    for number, values in enumerate(documented(repository)):
        texts = [text for name, text in files(values).items() if name.endswith(".yaml")]
        objects = [d for text in texts for d in yaml.safe_load_all(text) if d]
        (tmp_path / f"{number}.yaml").write_text(
            yaml.safe_dump_all([d for d in objects if d["apiVersion"].split("/")[0] not in CUSTOM])
        )
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, *sorted(tmp_path.iterdir())]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 3 == len(documented(repository))
    assert 0 == result.returncode, result.stdout + result.stderr


def test_the_overlay_of_the_documents_loads(repository, tmp_path):
    (tmp_path / "acme.toml").write_text(documented(repository)[0]["catalog"]["overlay"]["acme.toml"])

    assert load_catalog(tmp_path).packages.get("acme:2x-l40s:berlin")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "the pods refuse to start open to the cluster"),
        ({"auth": {"existingSecret": "x"}, "serviceMonitor": {"enabled": True}}, "Prometheus needs a key"),
        ({"autoscaling": {"enabled": True, "targetRequestsPerSecond": 9}}, "deploy/prometheus/adapter.yaml"),
    ],
)
def test_the_notes_say_what_is_still_missing(files, values, said):
    assert said in files(values)["NOTES.txt"]


def test_the_notes_of_a_complete_release_ask_for_nothing(files):
    notes = files({"settings": {"allow_open": "true"}})["NOTES.txt"]

    assert "NOTE" not in notes
    assert "helm test demo" in notes
