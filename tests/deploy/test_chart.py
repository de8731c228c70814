"""The chart renders, validates against its own schema and Kubernetes', and agrees with the code."""

import copy
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from helm_python import Chart
from helm_python import chart as helm
from helm_python.errors import HelmError
from tests.deploy.conftest import VALUES, of_kind

from tonnage.api.settings import Settings

KUBERNETES = ["1.30", "1.37"]
CUSTOM = ("HTTPRoute", "ServiceMonitor", "PrometheusRule")
WHOLE = {"Deployment", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service"}


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


def test_one_file_of_values_turns_everything_on(rendered):
    kinds = {document["kind"] for document in rendered["values-full.yaml"]}

    assert WHOLE | {"ConfigMap", "ServiceAccount", *CUSTOM} == kinds


@pytest.fixture(scope="session")
def custom_resources(repository):
    """Checks objects against the models of their publishers."""
    folder = repository / "deploy" / "custom_resources"
    if not (folder / "node_modules").is_dir() or shutil.which("node") is None:
        pytest.skip("not run: `npm ci` was not done in deploy/custom_resources")

    def check(documents):
        command = ["node", str(folder / "check.mjs")]
        return subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, check=False)

    return check


def test_custom_resources_are_what_their_publishers_define(rendered, custom_resources):
    documents = [d for values in VALUES for d in rendered[values] if d["kind"] in CUSTOM]

    result = custom_resources(documents)

    assert set(CUSTOM) == {d["kind"] for d in documents}
    assert (0, f"{len(documents)} objects are valid\n") == (result.returncode, result.stdout), result.stderr


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("HTTPRoute", ("spec", "rulez"), []),
        ("HTTPRoute", ("spec", "rules", 0, "matches", 0, "path", "type"), "Prefix"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "prt"), "http"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expr"), None),
    ],
)
def test_a_mistake_in_a_custom_resource_is_found(rendered, custom_resources, kind, path, value):
    (document,) = copy.deepcopy(of_kind(rendered["values-full.yaml"], kind))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    assert 1 == custom_resources([document]).returncode


@pytest.mark.parametrize(
    "values",
    [
        {"replicaCount": 0},
        {"replicas": 2},
        {"service": {"port": 70000}},
        {"image": {"digest": "latest"}},
        {"auth": {"keys": ["ci:fit:no-hash"]}},
    ],
)
def test_wrong_values_are_refused_by_the_schema(chart_dir, values):
    chart = Chart.load(str(chart_dir))

    with pytest.raises(HelmError):
        chart.render(values, name="demo")


def test_every_value_stands_in_the_schema(chart_dir):
    schema = json.loads((chart_dir / "values.schema.json").read_text())

    def names(values, schema):
        for key, value in values.items():
            assert key in schema["properties"]
            if isinstance(value, dict) and "properties" in schema["properties"][key]:
                names(value, schema["properties"][key])

    names(yaml.safe_load((chart_dir / "values.yaml").read_text()), schema)


def test_every_value_has_a_comment(chart_dir):
    schema = json.loads((chart_dir / "values.schema.json").read_text())
    lines = (chart_dir / "values.yaml").read_text().splitlines()
    above = {}
    path = []
    for before, line in zip(["", *lines], lines, strict=False):
        if match := re.match(r"( *)([A-Za-z]+):", line):
            path = [*path[: len(match[1]) // 2], match[2]]
            above[".".join(path)] = before.strip()

    def leaves(schema, path=""):
        for name, part in schema["properties"].items():
            if "properties" in part:
                yield from leaves(part, f"{path}{name}.")
            else:
                yield path + name

    uncommented = [name for name in leaves(schema) if name in above and not above[name].startswith("# ")]

    assert [] == uncommented


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
