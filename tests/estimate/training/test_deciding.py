"""What decides is part of the account: comparing layouts by it finds what the whole account finds."""

from itertools import product

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import SizingError
from tonnage.estimate.accounts import account_of, comparing, decisive
from tonnage.spec.card import SizingCard

CATALOG = load_catalog()
MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", {"parameters": 13_000_000_000})
GPUS = (None, "t4", "h100-sxm")
LAYOUTS = (
    {},
    {"data_parallel_size": 8},
    {"tensor_parallel_size": 2, "pipeline_parallel_size": 4},
)
JOBS = (
    {"framework": "transformers", "method": "full", "sharding": "zero3", "sequence_length": 1024, "micro_batch_size": 4},
    {"framework": "trl", "method": "lora", "lora": {"rank": 16}, "optimizer": "paged_adamw_8bit"},
    {"framework": "torchtune", "method": "full", "sequence_length": 8192, "sequence_lengths": "varying"},
    {"framework": "megatron", "method": "full", "cross_entropy": "full"},
    {"framework": "unsloth", "method": "qlora", "lora": {"rank": 16}},
    {"framework": "trl", "method": "full", "objective": "grpo", "vllm_gpu_memory_utilization": 0.3},
    {
        "framework": "trl", "method": "lora", "lora": {"rank": 16}, "objective": "grpo", "vllm_gpu_memory_utilization": 0.4,
        "vllm_enable_sleep_mode": True,
    },
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_deciding_part_finds_what_the_whole_account_finds(model):
    compared = 0
    for gpu, layout, job in product(GPUS, LAYOUTS, JOBS):
        asked = {"model": model, "training": job, "placement": {"gpu": gpu, **layout}}
        try:
            workload = resolve(CATALOG, msgspec.convert(asked, SizingCard))
            whole = account_of(workload)
        except SizingError:
            continue

        assert decisive(whole) == comparing(workload)(workload)
        compared += 1
    assert compared > 30
