"""The chart renders, validates against its own schema and Kubernetes', and agrees with the code."""

import subprocess
import sys

import pytest
import yaml
from helm_python import Chart
from helm_python import chart as helm
from helm_python.errors import HelmError

from tonnage.api.settings import Settings

VALUES = ["values-open.yaml", "values-full.yaml", "values-external-redis.yaml"]
KUBERNETES = ["1.30", "1.37"]
CUSTOM = ("HTTPRoute", "ServiceMonitor", "PrometheusRule")


@pytest.fixture(scope="module")
def chart_dir(repository):
    return repository / "helm" / "tonnage"


@pytest.fixture(scope="module")
def rendered(chart_dir):
    chart = Chart.load(str(chart_dir))

    def render(values):
        files = chart.render(values, name="demo")
        texts = [text for name, text in files.items() if name.endswith(".yaml")]
        return [doc for text in texts for doc in yaml.safe_load_all(text) if doc]

    return {name: render(yaml.safe_load((chart_dir / "ci" / name).read_text())) for name in VALUES}


def of_kind(documents, kind):
    return [d for d in documents if d["kind"] == kind and not d["metadata"]["name"].endswith("valkey")]


def test_lint_finds_nothing_worse_than_a_missing_icon(chart_dir):
    found = helm.lint(str(chart_dir))

    assert [] == found["errors"]
    assert [] == [m for m in found["messages"] if m["severity"] > 1]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_rendered_object_is_valid_for_kubernetes(rendered, values, version, tmp_path):
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all([d for d in rendered[values] if d["kind"] not in CUSTOM]))
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, str(file)]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    "values", [{"replicaCount": 0}, {"replicas": 2}, {"service": {"port": 70000}}, {"image": {"digest": "latest"}}]
)
def test_wrong_values_are_refused_by_the_schema(chart_dir, values):
    chart = Chart.load(str(chart_dir))

    with pytest.raises(HelmError):
        chart.render(values, name="demo")


def test_every_value_stands_in_the_schema(chart_dir):
    import json

    schema = json.loads((chart_dir / "values.schema.json").read_text())

    def names(values, schema):
        for key, value in values.items():
            assert key in schema["properties"]
            if isinstance(value, dict) and "properties" in schema["properties"][key]:
                names(value, schema["properties"][key])

    names(yaml.safe_load((chart_dir / "values.yaml").read_text()), schema)


@pytest.mark.parametrize("values", VALUES)
def test_environment_of_the_pod_is_known_to_the_settings(rendered, values):
    (deployment,) = of_kind(rendered[values], "Deployment")
    names = {e["name"] for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}

    assert names <= {f"TONNAGE_{field.upper()}" for field in Settings.__struct_fields__}


@pytest.mark.parametrize("values", VALUES)
def test_ports_of_probe_service_and_container_agree(rendered, values):
    (service,) = of_kind(rendered[values], "Service")
    (deployment,) = of_kind(rendered[values], "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    environment = {e["name"]: e.get("value") for e in container["env"]}

    assert str(ports["http"]) == environment["TONNAGE_PORT"]
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert {"http"} == {container[f"{p}Probe"]["httpGet"]["port"] for p in ("startup", "liveness", "readiness")}


@pytest.mark.parametrize("values", VALUES)
def test_every_pod_is_locked_down(rendered, values):
    pods = [d["spec"]["template"]["spec"] for d in rendered[values] if d["kind"] == "Deployment"]
    pods += [d["spec"] for d in rendered[values] if d["kind"] == "Pod"]

    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert ["ALL"] == context["capabilities"]["drop"]
            assert {"limits", "requests"} == set(container["resources"])


def test_image_user_agrees_with_the_chart(repository, rendered):
    dockerfile = (repository / "Dockerfile").read_text()
    (deployment,) = of_kind(rendered["values-open.yaml"], "Deployment")
    context = deployment["spec"]["template"]["spec"]["securityContext"]

    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile


def test_grace_period_covers_pre_stop_drain_and_requests(chart_dir):
    values = yaml.safe_load((chart_dir / "values.yaml").read_text())
    longest = values["preStopSleepSeconds"] + int(values["settings"]["drain_seconds"]) + Settings().shutdown_seconds

    assert values["terminationGracePeriodSeconds"] > longest


def test_the_bundled_cache_admits_the_service_only(rendered):
    (policy,) = [
        d for d in rendered["values-full.yaml"] if d["kind"] == "NetworkPolicy" and "valkey" in d["metadata"]["name"]
    ]
    (deployment,) = of_kind(rendered["values-full.yaml"], "Deployment")
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]

    assert peer["podSelector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert ["Ingress", "Egress"] == policy["spec"]["policyTypes"]
    assert "egress" not in policy["spec"]


def test_every_exception_of_checkov_is_explained(repository):
    lines = (repository / "deploy" / "checkov.yaml").read_text().splitlines()
    skipped = [number for number, line in enumerate(lines) if line.strip().startswith("- CKV")]

    assert skipped
    assert all(lines[number - 1].strip().startswith("#") for number in skipped)
