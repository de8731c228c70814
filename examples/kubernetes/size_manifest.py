"""
Set GPUs, node affinity and memory of a workload from its sizing card, before the scheduler sees it.

    python size_manifest.py --service http://tonnage --gpus l40s,a100-80-sxm,h100-sxm < deployment.yaml | kubectl apply -f -

The card stands in the annotation `tonnage/card`. Every GPU with 1, 2, 4 and 8 ranks goes to /estimate as one batch; the smallest
number of GPUs with verdict `met` wins, and the affinity names every product that meets it. Nothing that is not met is
scheduled: exit code 3, and 1 when the service cannot be asked.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from itertools import product
from typing import Any

import yaml

CARD = "tonnage/card"
ANSWER = "tonnage/answer"
RANKS = (1, 2, 4, 8)
PRODUCT = "nvidia.com/gpu.product"
"""Label that GPU feature discovery puts on nodes: the driver's name of the board, blanks as hyphens."""
MEBIBYTE = 1024 * 1024


def main() -> int:
    arguments = _arguments()
    manifest = yaml.safe_load(sys.stdin)
    try:
        fitting = options(arguments.service, card_of(manifest), arguments.gpus.split(","))
    except (urllib.error.URLError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not fitting:
        sys.stderr.write("no GPU of the list meets the card\n")
        return 3
    yaml.safe_dump(sized(manifest, fitting, arguments.service), sys.stdout, sort_keys=False, width=1000)
    return 0


def card_of(manifest: dict[str, Any]) -> dict[str, Any]:
    card = manifest["metadata"].get("annotations", {}).get(CARD)
    if card is None:
        raise ValueError(f"no annotation {CARD}")
    return json.loads(card)


def options(service: str, card: dict[str, Any], gpus: list[str]) -> list[dict[str, Any]]:
    """Answers with verdict met for the smallest number of GPUs that has any, by GPU."""
    layouts = [{"gpu": gpu, "tensor_parallel_size": ranks} for ranks, gpu in product(RANKS, gpus)]
    body = "".join(json.dumps({**card, "placement": layout}) + "\n" for layout in layouts).encode()
    request = urllib.request.Request(
        f"{service}/estimate?fields=verdict,host,digest", body, {"content-type": "application/x-ndjson"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answers = [{**layout, **json.loads(line)} for layout, line in zip(layouts, reply, strict=True)]
    met = [answer for answer in answers if answer.get("verdict") == "met"]
    fewest = min((answer["tensor_parallel_size"] for answer in met), default=0)
    return [answer for answer in met if answer["tensor_parallel_size"] == fewest]


def product_of(service: str, gpu: str) -> str:
    with urllib.request.urlopen(f"{service}/catalog/gpus/{gpu}", timeout=30) as reply:
        return json.load(reply)["name"].replace(" ", "-")


def sized(manifest: dict[str, Any], fitting: list[dict[str, Any]], service: str) -> dict[str, Any]:
    """The manifest with resources, affinity and what they were derived from."""
    pod = manifest["spec"].get("template", manifest)["spec"] if manifest["kind"] != "Pod" else manifest["spec"]
    ranks = fitting[0]["tensor_parallel_size"]
    memory = max(answer["host"]["memory"]["high"] for answer in fitting)
    resources = pod["containers"][0].setdefault("resources", {})
    resources.setdefault("limits", {})["nvidia.com/gpu"] = str(ranks)
    resources.setdefault("requests", {})["memory"] = f"{-(-memory // MEBIBYTE)}Mi"
    products = sorted(product_of(service, answer["gpu"]) for answer in fitting)
    term = {"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": products}]}
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    manifest["metadata"]["annotations"][ANSWER] = json.dumps(
        {answer["gpu"]: answer["digest"] for answer in fitting} | {"gpus": ranks}
    )
    return manifest


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Size a workload before it is scheduled.")
    parser.add_argument("--service", default="http://localhost:8000", help="address of the service")
    parser.add_argument("--gpus", required=True, help="GPUs of the cluster by catalogue id, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
