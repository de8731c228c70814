"""
A launcher's file from an answer of /fit: SkyPilot, dstack or Ray Serve.

    curl -s localhost:8000/fit -H 'content-type: application/json' -d @order.json | python from_fit.py skypilot > task.yaml

Takes the selected candidate; with `--first` the first one, although something is still to be confirmed. GPUs, hosts, memory, disk
and the command are those of the answer; names of GPUs are the launcher's.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

import yaml

NAMES = {
    "a100-40-pcie": "A100", "a100-40-sxm": "A100", "a100-80-pcie": "A100-80GB", "a100-80-sxm": "A100-80GB",
    "a10": "A10", "a10g": "A10G", "b200-sxm": "B200", "h100-pcie": "H100", "h100-sxm": "H100", "h200-sxm": "H200",
    "l4": "L4", "l40": "L40", "l40s": "L40S", "mi300x": "MI300X", "rtx-4090": "RTX4090", "rtx-5090": "RTX5090",
    "rtx-6000-ada": "RTX6000-Ada", "rtx-a6000": "RTXA6000", "t4": "T4", "v100-16": "V100", "v100-32": "V100-32GB",
}  # fmt: skip
"""Names that SkyPilot's and Ray's accelerator lists use."""
GB = 10**9
PORT = 8000


def skypilot(candidate: dict[str, Any]) -> dict[str, Any]:
    """A SkyPilot task; one node per host."""
    return {
        "name": "llm",
        "num_nodes": candidate["hosts"],
        "resources": {
            "accelerators": {accelerator(candidate): candidate["gpus_per_host"]},
            "memory": f"{memory_gb(candidate)}+",
            "ports": [PORT],
        },
        "envs": candidate["launch"]["env"],
        "run": shlex.join(candidate["launch"]["command"]),
    }


def dstack(candidate: dict[str, Any]) -> dict[str, Any]:
    """A dstack service on one host."""
    name, _, memory = accelerator(candidate).partition("-")
    gpu = {"name": name, "count": candidate["gpus_per_host"]} | ({"memory": memory} if memory.endswith("GB") else {})
    return {
        "type": "service",
        "name": "llm",
        "image": image_of(candidate),
        "env": [f"{name}={value}" for name, value in candidate["launch"]["env"].items()],
        "commands": [shlex.join(candidate["launch"]["command"])],
        "port": PORT,
        "resources": {"gpu": gpu, "memory": f"{memory_gb(candidate)}GB..", "shm_size": "16GB"},
    }


def ray_serve(candidate: dict[str, Any]) -> dict[str, Any]:
    """A Ray Serve application of the OpenAI server; the engine's flags become its keyword arguments."""
    _, _, model, *flags = candidate["launch"]["command"]
    config = {
        "model_loading_config": {"model_id": model.rpartition("/")[2], "model_source": model},
        "accelerator_type": accelerator(candidate),
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}},
        "engine_kwargs": keyword_arguments(flags),
    }
    application = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    return {"applications": [application]}


def accelerator(candidate: dict[str, Any]) -> str:
    try:
        return NAMES[candidate["gpu"]]
    except KeyError:
        raise SystemExit(f"no launcher's name is known for {candidate['gpu']}; add it to NAMES") from None


def memory_gb(candidate: dict[str, Any]) -> int:
    """What the answer requests of the host. [GB, rounded up]"""
    requests = candidate["launch"]["kubernetes"]["containers"][0]["resources"]["requests"]
    return -(-int(requests["memory"].removesuffix("Gi")) * 1024**3 // GB)


def image_of(candidate: dict[str, Any]) -> str:
    return candidate["launch"]["image"] or "$IMAGE"


def keyword_arguments(flags: list[str]) -> dict[str, Any]:
    """Flags of a command line as keyword arguments; a flag without a value is true, or false where it begins with no."""
    found: dict[str, Any] = {}
    for place, word in enumerate(flags):
        if word.startswith("--"):
            value = flags[place + 1] if place + 1 < len(flags) and not flags[place + 1].startswith("--") else True
            name = word[2:].replace("-", "_")
            if value is True and name.startswith("no_"):
                name, value = name[3:], False
            found[name] = yaml.safe_load(value) if isinstance(value, str) else value
    return found


LAUNCHERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "skypilot": skypilot,
    "dstack": dstack,
    "ray-serve": ray_serve,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="A launcher's file from an answer of /fit.")
    parser.add_argument("launcher", choices=LAUNCHERS)
    parser.add_argument(
        "--first", action="store_true", help="take the first candidate, although some of it is unconfirmed"
    )
    chosen = parser.parse_args()
    answer = json.load(sys.stdin)
    candidate = answer["selected"] or (answer["candidates"][0] if chosen.first and answer["candidates"] else None)
    if candidate is None:
        sys.stderr.write("nothing is selected:\n" + "".join(f"  {line}\n" for line in answer["confirmations"]))
        return 2 if answer["candidates"] else 3
    yaml.safe_dump(LAUNCHERS[chosen.launcher](candidate), sys.stdout, sort_keys=False, width=1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
