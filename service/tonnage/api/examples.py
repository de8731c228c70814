"""Cards that show what the service is for; the API description has them, and openapi/examples holds their answers."""

from typing import Any

ESTIMATES: dict[str, dict[str, Any]] = {
    "serving": {
        "summary": "Serve an 8B model on one card: eight users, 8,192 tokens each",
        "value": {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "serving": {
                "engine": "vllm", "max_model_len": 8192, "concurrency": 8, "input_tokens": 6000, "output_tokens": 1000,
            },
            "placement": {"gpu": "l40s"},
        },
    },
    "qlora": {
        "summary": "Fine-tune it with QLoRA on a consumer card",
        "value": {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "training": {
                "framework": "trl", "method": "qlora", "lora": {"rank": 16}, "micro_batch_size": 1,
                "sequence_length": 2048, "gradient_checkpointing": "full", "optimizer": "paged_adamw_8bit",
            },
            "placement": {"gpu": "rtx-4090"},
        },
    },
    "count": {
        "summary": "Only a count is known: weights, a reserve, and the published rules beside them",
        "value": {"model": {"parameters": 7_000_000_000}, "reserve": "6 GiB", "placement": {"gpu": "rtx-4090"}},
    },
    "failure": {
        "summary": "A run that failed: where its memory goes and what one change each would do",
        "value": {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "training": {
                "framework": "trl", "method": "lora", "lora": {"rank": 16}, "micro_batch_size": 4, "sequence_length": 4096,
            },
            "placement": {"gpu": "rtx-4090"},
            "failure": {
                "phase": "backward",
                "message": (
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. "
                    "GPU 0 has a total capacity of 23.64 GiB of which 1.21 GiB is free."
                ),
            },
        },
    },
}  # fmt: skip

FITS: dict[str, dict[str, Any]] = {
    "order": {
        "summary": "Which package to order for three days",
        "value": {
            "model": {"parameters": 7_000_000_000},
            "reserve": "6 GiB",
            "requirements": {"duration": "3 days", "max_price": "100 USD"},
        },
    },
    "serving": {
        "summary": "Serve a 70B model: which GPUs, how many, in which format",
        "value": {
            "model": "meta-llama/Llama-3.1-70B-Instruct",
            "serving": {"engine": "vllm", "max_model_len": 8192, "concurrency": 8},
            "offer": {"gpus": ["h100-sxm", "h200-sxm", "l40s"], "allow": {"weight_formats": ["bf16", "fp8"]}},
            "requirements": {"duration": "30 days"},
            "limit": 3,
        },
    },
}

MODELS: dict[str, dict[str, Any]] = {
    "gpu": {
        "summary": "Which of the larger models one card serves, 8,192 tokens each",
        "value": {
            "weights": {"format": "fp8"},
            "serving": {"engine": "vllm", "max_model_len": 8192, "concurrency": 4},
            "placement": {"gpu": "l40s"},
            "min_parameters": 10_000_000_000,
            "limit": 3,
        },
    },
}
"""Cards of /fit/models: settings and a GPU, no model."""
