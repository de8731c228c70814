"""The picture of the README, as the service draws it."""

from tonnage import render
from tonnage.library import estimate

CARD = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "serving": {"engine": "vllm", "max_model_len": 8192, "concurrency": 16},
    "placement": {"gpu": "l40s"},
}


def picture() -> str:
    """SVG of the answer to CARD."""
    return render.svg.estimate(estimate(CARD))
