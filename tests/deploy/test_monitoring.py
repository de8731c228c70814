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


def test_every_alert_is_seen_firing_and_silent(repository):
    rules = yaml.safe_load((repository / "deploy/prometheus/rules.yaml").read_text())
    tests = yaml.safe_load((repository / "deploy/prometheus/rules_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}

    assert alerts == {case["alertname"] for case in cases if case.get("exp_alerts")}
    assert alerts == {case["alertname"] for case in cases if not case.get("exp_alerts")}


def test_grafana_finds_the_dashboard_and_its_source(repository):
    """What compose mounts is where the provisioning looks, and every panel asks the source that is chosen first."""
    deploy = repository / "deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    (provider,) = yaml.safe_load((deploy / "grafana/provisioning/dashboards/tonnage.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((deploy / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    dashboard = json.loads((deploy / "grafana/dashboard.json").read_text())
    (variable,) = dashboard["templating"]["list"]

    assert all((deploy / mounted).exists() for mounted in mounts)
    assert mounts["./grafana/dashboard.json"].startswith(provider["options"]["path"] + "/")
    assert "/etc/grafana/provisioning" == mounts["./grafana/provisioning"]
    assert {source["type"]} == {panel["datasource"]["type"] for panel in dashboard["panels"]}
    assert {"${" + variable["name"] + "}"} == {panel["datasource"]["uid"] for panel in dashboard["panels"]}
    assert (source["name"], source["uid"]) == (variable["current"]["text"], variable["current"]["value"])


def test_compose_scrapes_and_caches_by_the_names_of_its_services(repository):
    deploy = repository / "deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    scraped = yaml.safe_load((deploy / "prometheus/prometheus.yml").read_text())
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    mounts = dict(volume.split(":")[:2] for volume in services["prometheus"]["volumes"])
    source = yaml.safe_load((deploy / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]

    assert {"tonnage", "valkey", "prometheus", "grafana"} == set(services)
    assert services["tonnage"]["ports"][0].endswith(":" + target.removeprefix("tonnage:"))
    assert services["tonnage"]["environment"]["TONNAGE_REDIS_URL"].startswith("redis://valkey:6379/")
    assert scraped["rule_files"] == [mounts["./prometheus/rules.yaml"]]
    assert "http://prometheus:9090" == source["url"]


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

    ours = [file for file in files if "node_modules" not in file.parts]

    problems = {f.name: list(yamllint.run(f.read_text(), config)) for f in ours}

    assert {} == {name: found for name, found in problems.items() if found}
