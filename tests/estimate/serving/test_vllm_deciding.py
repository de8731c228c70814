"""What decides is part of the account: comparing layouts by it finds what the whole account finds."""

from itertools import product

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import SizingError
from tonnage.estimate.accounts import account_of, comparing, decisive
from tonnage.spec.card import SizingCard

CATALOG = load_catalog()
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "google/gemma-3-27b-it",
    "deepseek-ai/DeepSeek-V3",
)
GPUS = ("t4", "v100-16", "l40s", "h100-sxm", "mi300x")
LAYOUTS = (
    {},
    {"tensor_parallel_size": 4},
    {"pipeline_parallel_size": 8},
    {"tensor_parallel_size": 2, "pipeline_parallel_size": 4, "data_parallel_size": 2},
)
SETTINGS = (
    {},
    {"engine_version": "0.6.3", "max_model_len": 4096},
    {"max_num_seqs": 32, "concurrency": 64, "input_tokens": 900, "output_tokens": 100, "shared_prefix_tokens": 500},
    {"kv_cache_memory_bytes": "4 GiB", "concurrency": 8, "max_model_len": 8192},
)


@pytest.mark.parametrize("model", MODELS)
def test_the_deciding_part_finds_what_the_whole_account_finds(model):
    compared = 0
    for gpu, layout, settings in product(GPUS, LAYOUTS, SETTINGS):
        asked = {"model": model, "serving": {"engine": "vllm", **settings}, "placement": {"gpu": gpu, **layout}}
        try:
            workload = resolve(CATALOG, msgspec.convert(asked, SizingCard))
            whole = account_of(workload)
        except SizingError:
            continue

        assert decisive(whole) == comparing(workload)(workload)
        compared += 1
    assert compared > 50
