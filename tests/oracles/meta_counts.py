"""
Parameter counts of configs as transformers really builds them, on the meta device.

Writes tests/architecture_readers/golden/meta_counts.json: for every config below the total and the sizes
of a few kinds of tensors. Needs torch and transformers, neither of which the service uses:

    python -m venv oracle && oracle/bin/pip install torch==2.13.0 transformers==5.24.0
    oracle/bin/python tests/oracles/meta_counts.py

The configs are siblings and odd settings of the catalogue's families that no catalogue entry has.
"""

import copy
import json
import logging
import os
import re
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402  (paths come first)
import transformers  # noqa: E402  (paths come first)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402  (paths come first)

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "architecture_readers" / "golden" / "meta_counts.json"
AUTO_CLASSES = (
    "AutoModelForImageTextToText", "AutoModelForSpeechSeq2Seq", "AutoModelForSeq2SeqLM", "AutoModelForCausalLM",
    "AutoModelForMaskedLM", "AutoModel",
)  # fmt: skip
SHORT = (8, 24)
"""Two lengths below every window. [tokens]"""
EXPERTS = re.compile(r"experts\.|experts_|\.experts")


def build(config: dict) -> tuple[torch.nn.Module, str]:
    """Model of a config without storage, and the class transformers chose for it."""
    settings = CONFIG_MAPPING[config["model_type"]].from_dict(_padded(copy.deepcopy(config)))
    name = next(iter(config.get("architectures") or ()), None)
    chosen = getattr(transformers, name) if name else _chosen(settings)
    with torch.device("meta"):
        model = chosen._from_config(settings)
    model.tie_weights()
    return model, chosen.__name__


def _padded(config: dict) -> dict:
    """A class's own padding token may lie outside a smaller vocabulary."""
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            part.setdefault("pad_token_id", 0)
    return config


def _chosen(settings):
    for auto in (getattr(transformers, name) for name in AUTO_CLASSES):
        if type(settings) in auto._model_mapping:
            found = auto._model_mapping[type(settings)]
            return found[0] if isinstance(found, tuple) else found
    raise ValueError(f"no model class for {type(settings).__name__}")


def counted(config: dict) -> dict:
    """Total and parts that can be told by name alone."""
    model, name = build(config)
    parts = {"routed_experts": 0}
    total = 0
    for parameter_name, parameter in model.named_parameters():
        total += parameter.numel()
        if EXPERTS.search(parameter_name) and "shared" not in parameter_name:
            parts["routed_experts"] += parameter.numel()
    return {"architectures": [name], "total": total, **parts, "cache_elements_per_token": cached_per_token(model)}


def cached_per_token(model: torch.nn.Module) -> int | None:
    """Elements generate() keeps per token below any window; None where a forward pass on the meta device fails."""
    for pair in (False, True):
        _without_experts(model, pair)
        try:
            kept = [_kept(model, tokens) for tokens in SHORT]
        except Exception:
            continue
        return (kept[1] - kept[0]) // (SHORT[1] - SHORT[0])
    return None


def _without_experts(model: torch.nn.Module, pair: bool) -> None:
    """Routing depends on values and keeps nothing: blocks with experts give zeros, some with their logits."""
    for block in model.modules():
        if hasattr(block, "experts"):
            block.forward = lambda states, *_, **__: (
                (torch.zeros_like(states), None) if pair else torch.zeros_like(states)
            )


def _kept(model: torch.nn.Module, tokens: int) -> int:
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    with torch.no_grad():
        layers = model.eval()(input_ids=ids, use_cache=True).past_key_values.layers
    pairs = (getattr(layer, name, None) for layer in layers for name in ("keys", "values"))
    return sum(tensor.numel() for tensor in pairs if tensor is not None)


def main() -> None:
    """Rebuild the golden file, or print the counts of the labels given."""
    cases = json.loads((HERE / "meta_configs.json").read_text())
    rows = []
    for case in cases:
        if sys.argv[1:] and case["label"] not in sys.argv[1:]:
            continue
        try:
            rows.append({**case, "counts": counted(case["config"])})
        except Exception as error:  # one config that transformers refuses must not cost the others
            print(f"{case['label']}: {type(error).__name__}: {error}", file=sys.stderr)
    text = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "script": "tests/oracles/meta_counts.py",
        "rows": rows,
    }
    if sys.argv[1:]:
        print(json.dumps(rows, indent=1))
    else:
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
