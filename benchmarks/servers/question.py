"""The question and the answer that every server in the comparison reads and writes."""

import msgspec

from tonnage import evidence
from tonnage.catalog import load_catalog
from tonnage.spec.card import SizingCard

SERVING = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "serving": {
        "engine": "vllm", "engine_version": "0.19.0", "max_model_len": 8192, "max_num_seqs": 64, "concurrency": 8,
        "input_tokens": 6000, "output_tokens": 1000,
    },
    "placement": {"gpu": "l40s", "tensor_parallel_size": 1},
    "reserve": "1 GiB",
}  # fmt: skip
TRAINING = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "training": {
        "framework": "trl", "method": "lora", "lora": {"rank": 16}, "micro_batch_size": 2, "sequence_length": 2048,
        "gradient_checkpointing": "full", "optimizer": "adamw",
    },
    "placement": {"gpu": "h100-sxm"},
}  # fmt: skip

SERVING_BODY = msgspec.json.encode(SERVING)
TRAINING_BODY = msgspec.json.encode(TRAINING)


def prebuilt():
    """The answer to SERVING, made once."""
    return evidence.estimate(load_catalog(), msgspec.convert(SERVING, SizingCard))
