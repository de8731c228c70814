"""The chart, rendered with every file of values it comes with."""

import pytest
import yaml
from helm_python import Chart

VALUES = ["values-open.yaml", "values-full.yaml", "values-external-redis.yaml", "values-keys.yaml"]


def of_kind(documents, kind):
    """Objects of a kind, those of the bundled cache left out."""
    return [d for d in documents if d["kind"] == kind and not d["metadata"]["name"].endswith("valkey")]


@pytest.fixture(scope="session")
def chart_dir(repository):
    return repository / "helm" / "tonnage"


@pytest.fixture(scope="session")
def files(chart_dir):
    """Rendered files by name."""
    chart = Chart.load(str(chart_dir))

    def render(values):
        return {name.split("templates/")[1]: text for name, text in chart.render(values, name="demo").items()}

    return render


@pytest.fixture(scope="session")
def rendered(chart_dir, files):
    """Objects by file of values."""
    assert set(VALUES) == {path.name for path in (chart_dir / "ci").iterdir()}

    def objects(values):
        texts = [text for name, text in files(values).items() if name.endswith(".yaml")]
        return [doc for text in texts for doc in yaml.safe_load_all(text) if doc]

    return {name: objects(yaml.safe_load((chart_dir / "ci" / name).read_text())) for name in VALUES}
