"""Rules, dashboard and compose file speak of metrics that the service really has."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from prometheus_client import generate_latest

from tonnage.api.settings import Settings
from tonnage.api.telemetry import Telemetry


def exported_names():
    text = generate_latest(Telemetry().registry).decode()
    names = set(re.findall(r"^# HELP (\S+)", text, re.MULTILINE))
    return names | {f"{n}_bucket" for n in names}


def named(expression):
    return set(re.findall(r"\b(?:tonnage|process)_[a-z0-9_]+", re.sub(r"tonnage:[a-z0-9_:]+", "", expression)))


def test_every_rule_uses_metrics_that_exist(repository):
    rules = yaml.safe_load((repository / "deploy/prometheus/rules.yaml").read_text())
    used = {name for group in rules["groups"] for rule in group["rules"] for name in named(rule["expr"])}

    assert used
    assert set() == used - exported_names()


def test_every_panel_uses_metrics_that_exist(repository):
    dashboard = json.loads((repository / "deploy/grafana/dashboard.json").read_text())
    used = {name for panel in dashboard["panels"] for target in panel["targets"] for name in named(target["expr"])}

    assert used
    assert set() == used - exported_names()


def test_the_chart_ships_the_same_rules(repository):
    ours = (repository / "deploy/prometheus/rules.yaml").read_text()

    assert ours == (repository / "helm/tonnage/rules.yaml").read_text()


def test_alerts_fire_when_they_should(repository):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("not run: promtool is not installed (Debian package prometheus)")
    where = repository / "deploy" / "prometheus"

    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        result = subprocess.run([promtool, *command], cwd=where, capture_output=True, text=True, check=False)
        assert 0 == result.returncode, result.stdout + result.stderr


def test_compose_sets_only_settings_that_exist(repository):
    compose = yaml.safe_load((repository / "deploy/compose.yaml").read_text())
    names = {n for n in compose["services"]["tonnage"]["environment"] if n.startswith("TONNAGE_")}

    assert names
    assert names <= {f"TONNAGE_{f.upper()}" for f in Settings.__struct_fields__}


def test_yaml_is_tidy(repository):
    yamllint = pytest.importorskip("yamllint.linter")
    off = dict.fromkeys(["line-length", "document-start", "braces", "truthy", "comments"], "disable")
    config = pytest.importorskip("yamllint.config").YamlLintConfig(json.dumps({"extends": "default", "rules": off}))
    files = [*(repository / "deploy").rglob("*.y*ml"), *(repository / "helm/tonnage/ci").glob("*.yaml")]

    problems = {f.name: list(yamllint.run(f.read_text(), config)) for f in files}

    assert {} == {name: found for name, found in problems.items() if found}
