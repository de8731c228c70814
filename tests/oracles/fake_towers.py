"""
Allocated peaks of training steps of vision-language models, recorded as fake_training.py records those of text models.

The classes are Hugging Face's; what their forward pass reads out of tensors (how many patches an image has, which
tokens stand for images) is given to them, since fake tensors hold nothing.

    python tests/oracles/fake_towers.py record build/towers.jsonl     # what of RUNS is not there yet
    python tests/oracles/fake_towers.py compact build/towers.jsonl    # into tower_runs.json
"""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fake_gpu import DTYPES, Ledger, bytes_of, mend_environment, torch  # noqa: E402  (paths come first)
from fake_phases import compact_runs  # noqa: E402  (paths come first)
from fake_training import adapt, record_all, started_on_gpu  # noqa: E402  (paths come first)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  (paths come first)

TEXT = {"num_hidden_layers": 2}
QWEN = {"model_type": "qwen2_5_vl_text", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064} | TEXT  # fmt: skip
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
         "num_key_value_heads": 32, "vocab_size": 32064} | TEXT  # fmt: skip
CLIP = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}  # fmt: skip
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 6,
          "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False}  # fmt: skip
QWEN_TOWER = {"model_type": "qwen2_5_vl", "depth": 6, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
              "out_hidden_size": 3584, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [2, 5]}  # fmt: skip
FAMILIES = {
    "llava-1.5-7b": {"model_type": "llava", "text_config": LLAMA, "vision_config": CLIP, "image_seq_length": 576},
    "gemma3-4b": {
        "model_type": "gemma3", "vision_config": SIGLIP, "mm_tokens_per_image": 256,
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024} | TEXT,
    },
    "qwen2.5-vl-7b": {"model_type": "qwen2_5_vl", "text_config": QWEN, "vision_config": QWEN_TOWER, "tie_word_embeddings": False},
    "qwen2-vl-7b": {
        "model_type": "qwen2_vl", "text_config": QWEN | {"model_type": "qwen2_vl_text"}, "tie_word_embeddings": False,
        "vision_config": {"model_type": "qwen2_vl", "depth": 6, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14},
    },
}  # fmt: skip
WINDOW = 64
"""Patches of a full window of Qwen2.5-VL: (112 / 14)^2."""


def run(family, images, patches, length, *, frozen=False, lora=None, **training):
    """`patches` of each image; `frozen`: the tower, its projector trains like the text model."""
    card = {"micro_batch_size": 1, "sequence_length": length, "method": "full"} | training
    if lora is not None:
        card |= {"method": "lora", "lora": {"rank": 16} | lora}
    return {
        "family": family,
        "config": FAMILIES[family],
        "images": images,
        "patches": patches,
        "frozen": frozen,
        "training": card,
    }


CHECKPOINTED = {"gradient_checkpointing": "full"}
LORA = {"lora": {"target_modules": r".*language_model.*\.(q|k|v|o)_proj"}}
SIZES = {
    "llava-1.5-7b": (8, 577, 5120),
    "gemma3-4b": (4, 4096, 1280),
    "qwen2.5-vl-7b": (4, 4096, 4352),
    "qwen2-vl-7b": (4, 4096, 4352),
}
RUNS = [
    run(family, images, patches, length, **more)
    for family, (images, patches, length) in SIZES.items()
    for more in ({}, CHECKPOINTED, {"frozen": True}, {"frozen": True} | CHECKPOINTED, LORA | CHECKPOINTED)
]  # fmt: skip
RUNS += [run(family, 16, patches, length, **CHECKPOINTED) for family, (_, patches, length) in SIZES.items()]


class Ends:
    """Where images end, readable though fake tensors are not: what `cu_seqlens` gives to a tower."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __getitem__(self, _):
        return self

    def __sub__(self, _):
        return self

    def tolist(self):
        return self.lengths


def measure(run):
    """Peaks of forward and backward of a step; gradients are there before neither, and no optimizer."""
    import transformers

    mend_environment()
    config = transformers.AutoConfig.for_model(**run["config"])
    config.get_text_config().use_cache = False
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(
            config, dtype=DTYPES["bf16"], attn_implementation="sdpa"
        )
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("transformers.models") and hasattr(
            module, "torch_compilable_check"
        ):
            module.torch_compilable_check = lambda *_, **__: None
    tower = model.model.visual if hasattr(model.model, "visual") else model.model.vision_tower
    if run["frozen"]:
        tower.requires_grad_(False)
        if hasattr(tower, "merger"):
            tower.merger.requires_grad_(True)
    whole = model
    if "lora" in run["training"]:
        model = adapt(model, run["training"]["lora"], "CausalLM")
    ledger = Ledger()
    with FakeTensorMode(allow_non_fake_inputs=True):
        started_on_gpu(model, ledger)
        if run["training"].get("gradient_checkpointing") == "full":
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
            if "lora" in run["training"]:
                model.enable_input_require_grads()
        resident = bytes_of([*model.parameters(), *model.buffers()])
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        arguments = inputs(run, whole, config)
        ledger.see(arguments["pixel_values"])
        with ledger:
            ledger.phase = "forward"
            loss = model(**arguments).loss
            ledger.phase = "backward"
            loss.backward()
    return {"trainable": trainable, "resident": resident, "forward": ledger.peaks["forward"], "backward": ledger.peaks["backward"],
            "operators": [ledger.peak_operators[p] for p in ("forward", "backward")]}  # fmt: skip


def inputs(run, model, config):
    """A batch of one sample with its images, whose pixels are fp32 as processors give them."""
    ids = torch.empty((1, run["training"]["sequence_length"]), dtype=torch.long, device="cuda")
    given = {"input_ids": ids, "labels": ids}
    if not hasattr(model.model, "visual"):
        side = config.vision_config.image_size
        pixels = torch.empty((run["images"], 3, side, side), device="cuda")
        if run["family"].startswith("gemma3"):
            given["token_type_ids"] = torch.empty_like(ids)
        return given | {"pixel_values": pixels}
    patches, vision = run["images"] * run["patches"], config.vision_config
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    tower, merge = model.model.visual, vision.spatial_merge_size**2
    known = {
        "position_ids": torch.empty((patches, 2), dtype=torch.long, device="cuda"),
        "cu_seqlens": Ends([run["patches"]] * run["images"]),
        "max_seqlen": run["patches"],
    }
    if run["family"].startswith("qwen2.5"):
        order = torch.empty(patches // merge, dtype=torch.long, device="cuda")
        known |= {
            "window_index": order,
            "cu_window_seqlens": Ends([WINDOW] * (patches // WINDOW)),
            "max_window_seqlen": WINDOW,
        }
    model.model.get_image_features = partial(features, tower, known)
    positions = torch.empty((3, *ids.shape), dtype=torch.long, device="cuda")
    return given | {
        "pixel_values": torch.empty((patches, width), device="cuda"),
        "image_grid_thw": None,
        "position_ids": positions,
    }


def features(tower, known, pixel_values, *_, **__):
    found = tower(pixel_values.type(tower.dtype), grid_thw=None, **known)
    found.pooler_output = (found.pooler_output,)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", path]:
            record_all(RUNS, measure, Path(path))
        case ["compact", path]:
            about = "tests/oracles/fake_towers.py; figures: trainable parameters, resident bytes, peaks of forward and backward"
            figures = ("trainable", "resident", "forward", "backward")
            compact_runs(Path(path), about, figures, HERE / "tower_runs.json")
