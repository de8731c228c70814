"""Render the chart with each of its example values into a folder: `python deploy/render_chart.py FOLDER`."""

import sys
from pathlib import Path

import yaml
from helm_python import Chart

CHART = Path(__file__).resolve().parent.parent / "helm" / "tonnage"


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    chart = Chart.load(str(CHART))
    for values in sorted((CHART / "ci").glob("*.yaml")):
        files = chart.render(yaml.safe_load(values.read_text()), name="demo", namespace="sizing")
        (folder / values.name).write_text(
            "\n---\n".join(text for name, text in files.items() if name.endswith(".yaml"))
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
