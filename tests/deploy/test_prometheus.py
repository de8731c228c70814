"""A real Prometheus scrapes a real service: every panel's query and every recording rule returns data."""

import json
import shutil
import subprocess

import httpx
import pytest
import yaml
from tests.api.serving import serving
from tests.waiting import SECONDS, free_port, wait_for

EMPTY_WHILE_ALL_IS_WELL = ("tonnage_refused_total", 'state="down"')
"""Parts of queries that have nothing to show as long as nothing goes wrong."""


@pytest.fixture(scope="module")
def prometheus(repository, tmp_path_factory):
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("not run: prometheus is not installed (Debian package prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_load((repository / "deploy/prometheus/rules.yaml").read_text())
    for group in rules["groups"]:
        group["interval"] = "1s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    with serving() as service:
        config = yaml.safe_load((repository / "deploy/prometheus/prometheus.yml").read_text())
        config["global"]["scrape_interval"] = config["global"]["evaluation_interval"] = "1s"
        config["rule_files"] = [str(folder / "rules.yaml")]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{service.port}"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        command = [
            binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}", "--log.level=error",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            scraped(f"http://{address}", service)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait()


def use(service):
    """Some of everything, refusals included."""
    for path in (
        "/estimate?model=Qwen/Qwen3-8B&engine=vllm&max_model_len=8192&gpu=l40s",
        "/fit?model.parameters=7000000000&gpus=rtx-4090",
        "/catalog/gpus",
        "/catalog/gpus",
        "/estimate?model=nobody/nothing",
    ):
        service.get(path)


def scraped(prometheus, service):
    """Traffic between several scrapes, so that rates exist."""

    def counted():
        use(service)
        return values(prometheus, "tonnage:http_request_duration_seconds:p99_rate5m{route='/fit'} > 0")

    wait_for(counted)


def values(prometheus, expression):
    try:
        answer = httpx.get(f"{prometheus}/api/v1/query", params={"query": expression}, timeout=SECONDS).json()
    except httpx.TransportError:
        return []
    assert "success" == answer["status"], answer
    return [float(row["value"][1]) for row in answer["data"]["result"]]


def test_every_panel_shows_data(repository, prometheus):
    dashboard = json.loads((repository / "deploy/grafana/dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    empty = [query for query in queries if not values(prometheus, query)]

    assert len(queries) > 10
    assert [] == [query for query in empty if not any(part in query for part in EMPTY_WHILE_ALL_IS_WELL)]


def test_every_recording_rule_records(repository, prometheus):
    rules = yaml.safe_load((repository / "deploy/prometheus/rules.yaml").read_text())
    recorded = [rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule]
    empty = [name for name in recorded if not values(prometheus, name)]

    assert len(recorded) > 3
    assert [] == [name for name in empty if "errors" not in name]


def test_the_adapters_query_counts_what_callers_ask(repository, prometheus):
    """The metric of the autoscaler, put together as prometheus-adapter does it."""
    (rule,) = yaml.safe_load((repository / "deploy/prometheus/adapter.yaml").read_text())["rules"]["custom"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "instance").replace("<<.LabelMatchers>>", 'job="tonnage"')
    query = query.replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])

    (rate,) = values(prometheus, query)

    assert rate > 0


def test_no_alert_fires_while_all_is_well(prometheus):
    assert [] == values(prometheus, 'ALERTS{alertstate="firing"}')


def test_the_target_is_up(prometheus):
    assert [1.0] == values(prometheus, "up")
