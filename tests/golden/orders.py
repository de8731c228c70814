"""Kept answers of /fit: requests over packages of their own, and what is kept of each candidate."""

import json
from pathlib import Path
from typing import Any

import msgspec

from tonnage.catalog import load_catalog
from tonnage.fit import fit
from tonnage.spec.fit import FitRequest

KEPT = Path(__file__).resolve().parent / "orders.json"

Kept = dict[str, Any]


def _package(name: str, gpu: str, per_host: int, price: str | None, **more: Any) -> dict[str, Any]:
    offer = {"price": price, "as_of": "2026-09-01", "source": "list"} | more.pop("offer", {})
    return {
        "id": name, "gpu": gpu, "gpus_per_host": per_host, "host_memory_bytes": "512 GiB", "disk_bytes": "4 TB",
        "interconnect": "NVSwitch + 3200 Gb/s IB", "delivery_days": 2, "region": "north",
        "offers": [] if price is None else [offer, *more.pop("more_offers", [])],
    } | more  # fmt: skip


_PACKAGES = [
    _package("a-desk", "rtx-4090", 1, "0.50", interconnect="PCIe 4.0", host_memory_bytes="64 GiB", region="south"),
    _package("b-pcie", "l40s", 4, "4.20", interconnect="PCIe 4.0", offer={"minimum_hours": 24}),
    _package("c-block", "h100-sxm", 8, "20", max_hosts=4, provider="second"),
    _package("d-other", "mi300x", 8, "16", offer={"currency": "EUR"}, interconnect="Infinity Fabric"),
    _package("e-month", "a100-sxm-80gb", 2, "1800", offer={"per": "month"}, max_hosts=2, region="eu"),
    _package("f-spot", "h100-nvl", 2, "6", offer={"kind": "spot"}, more_offers=[{"price": "9", "kind": "marketplace"}]),
    _package("g-term", "h200-sxm", 8, "7000", offer={"per": "term", "term_hours": 168, "kind": "capacity-block"}),
    _package("h-unknown", "l4", 1, None, host_memory_bytes=None, disk_bytes=None, interconnect=None, region=None),
    _package("i-old", "a100-pcie-40gb", 4, "5", offer={"as_of": "2024-01-15"}, disk_bytes="50 GB", delivery_days=40),
    _package("j-tiny", "l4", 2, "1.10", interconnect="PCIe 4.0", host_memory_bytes="16 GiB", max_hosts=8),
    _package("k-doubt", "rtx-pro-6000-server", 1, "2.20", interconnect="PCIe 5.0", offer={"as_of": None}),
]
_VLLM = {"engine": "vllm", "max_model_len": 8192, "concurrency": 16}
_LORA = {"method": "lora", "framework": "trl", "lora": {"rank": 16}, "micro_batch_size": 2, "sequence_length": 2048}


def _own(**more: Any) -> dict[str, Any]:
    return {"inline": _PACKAGES, "catalog": False} | more


REQUESTS: dict[str, dict[str, Any]] = {
    "small served": {"model": "Qwen/Qwen3-0.6B", "serving": _VLLM, "requirements": {"duration": "3 days"}},
    "8B served with a budget": {
        "model": "Qwen/Qwen3-8B", "serving": _VLLM | {"concurrency": 64},
        "requirements": {"duration": "10 days", "max_price": "900 USD", "min_headroom_fraction": 0.1},
        "maximize": "concurrency",
    },
    "70B served": {
        "model": "meta-llama/Llama-3.3-70B-Instruct", "serving": _VLLM, "requirements": {"duration": 100},
        "maximize": "max_model_len",
    },
    "70B in three formats": {
        "model": "meta-llama/Llama-3.3-70B-Instruct", "serving": _VLLM | {"concurrency": 4},
        "offer": _own(allow={"weight_formats": ["bf16", "fp8-per-tensor", "awq-w4-g128"], "kv_cache_dtypes": ["auto", "fp8"]}),
        "requirements": {"quality": {"metric": "mmlu", "minimum": 80, "evidence": {"bf16": 86, "awq-w4-g128": 79}}},
    },
    "MoE with native formats": {
        "model": "Qwen/Qwen3-30B-A3B", "serving": {"engine": "sglang", "max_model_len": 16384, "concurrency": 32},
        "requirements": {
            "native_dtypes": ["fp8", "bf16"], "min_compute_capability": "8.9", "interconnect": "nvlink",
            "min_bandwidth": "1 TB/s", "duration": "1 week",
        },
    },
    "llama.cpp on a host": {
        "model": "Qwen/Qwen3-8B", "weights": {"format": "gguf-q4_k_m"},
        "serving": {"engine": "llama.cpp", "max_model_len": 32768, "n_parallel": 2},
        "requirements": {"min_host_memory": "32 GiB", "min_disk": "100 GB"}, "maximize": "max_model_len",
    },
    "TensorRT-LLM, tensor parallelism forbidden": {
        "model": "Qwen/Qwen3-32B", "serving": {"engine": "tensorrt-llm", "max_model_len": 4096, "concurrency": 8},
        "offer": _own(allow={"tensor_parallel": False, "several_hosts": False}),
    },
    "no copies, no stages": {
        "model": "Qwen/Qwen3-32B", "serving": _VLLM,
        "offer": _own(allow={"pipeline_parallel": False, "data_parallel": False, "spot": True, "marketplace": True}),
    },
    "LoRA of 8B": {"model": "Qwen/Qwen3-8B", "training": _LORA, "maximize": "micro_batch_size"},
    "full training of 8B": {
        "model": "Qwen/Qwen3-8B", "training": {"method": "full", "framework": "deepspeed", "micro_batch_size": 1},
        "requirements": {"interconnect": "fabric", "duration": "2 weeks", "currency": "USD"},
        "offer": _own(max_hosts=3, max_gpus=24),
    },
    "Megatron over hosts": {
        "model": "Qwen/Qwen3-32B", "training": {"method": "full", "framework": "megatron", "sequence_length": 4096},
        "requirements": {"duration": "500 hours", "interconnect": "nvlink"},
    },
    "a bare count": {
        "model": {"parameters": 13_000_000_000}, "weights": {"format": "bf16"}, "reserve": {"fraction": 0.2},
        "requirements": {"duration": "1 month", "max_price": "5000 USD"},
    },
    "a stated layout": {
        "model": "Qwen/Qwen3-8B", "serving": _VLLM,
        "placement": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    },
    "a stated GPU": {"model": "Qwen/Qwen3-8B", "serving": _VLLM, "placement": {"gpu": "l4"}, "maximize": "headroom"},
    "dates": {
        "model": "Qwen/Qwen3-4B", "serving": _VLLM,
        "requirements": {
            "order_date": "2026-09-10", "delivery_by": "2026-09-15", "max_price_age_days": 30, "duration": "2 days",
        },
        "offer": _own(regions=["north", "south"], providers=["inline"]),
    },
    "the caller's own evidence": {
        "model": "Qwen/Qwen3-4B", "serving": _VLLM,
        "requirements": {
            "throughput": {"minimum_tokens_per_second": 900, "evidence": {"l4": 300, "rtx-4090": 1500, "c-block": 9000}},
        },
        "evidence": [
            {"requirement": "price", "status": "met", "sku": "h-unknown", "source": "a quote", "date": "2026-09-02"},
            {"requirement": "memory", "status": "excluded", "gpu": "l40s", "source": "a run that failed"},
        ],
    },
    "today's run failed": {
        "model": "Qwen/Qwen3-32B", "training": _LORA, "current": {"gpu": "rtx-4090"},
        "failure": {"phase": "backward", "requested_bytes": 2_000_000_000, "free_bytes": 300_000_000},
    },
    "today's package": {
        "model": "Qwen/Qwen3-14B", "serving": _VLLM, "current": {"sku": "b-pcie"}, "requirements": {"duration": "5 days"},
        "failure": {"phase": "kv_allocation"},
    },
    "today's layout over two hosts": {
        "model": "Qwen/Qwen3-32B", "serving": _VLLM,
        "current": {"sku": "e-month", "placement": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}},
    },
    "today's layout of a GPU": {
        "model": "Qwen/Qwen3-14B", "serving": _VLLM,
        "current": {"gpu": "l40s", "placement": {"tensor_parallel_size": 2, "data_parallel_size": 2}},
    },
    "a measured peak": {
        "model": "Qwen/Qwen3-8B", "training": _LORA, "placement": {"gpu": "rtx-4090"},
        "measurements": [
            {"phase": "backward", "counter": "device", "peak_bytes": 21_000_000_000, "gpu": "rtx-4090", "scope": "gpu"},
        ],
    },
    "ollama": {
        "model": "Qwen/Qwen3-4B", "weights": {"format": "gguf-q4_k_m"}, "serving": {"engine": "ollama", "max_model_len": 8192},
    },
    "TGI": {"model": "Qwen/Qwen3-4B", "serving": {"engine": "tgi", "max_model_len": 4096}, "offer": _own(gpus=["l4", "l40s"])},
    "Transformers": {
        "model": "Qwen/Qwen3-4B", "serving": {"engine": "transformers", "batch_size": 4, "max_model_len": 2048},
        "offer": _own(max_gpus_per_host=2, skus=["e-month", "j-tiny", "b-pcie"]), "requirements": {"duration": "45 days"},
    },
    "torchtune over replicas": {
        "model": "Qwen/Qwen3-4B", "training": {"method": "lora", "framework": "torchtune", "lora": {"rank": 8}},
        "requirements": {"interconnect": "pcie", "min_headroom_fraction": 0.3},
    },
    "QLoRA with Unsloth": {
        "model": "Qwen/Qwen3-14B", "training": _LORA | {"method": "qlora", "framework": "unsloth"},
        "requirements": {"max_price": "1000 EUR", "duration": "12 hours"}, "maximize": "micro_batch_size",
    },
    "nothing fits": {
        "model": "deepseek-ai/DeepSeek-V3", "serving": _VLLM, "offer": _own(max_gpus=2), "limit": 3,
    },
}  # fmt: skip


def answer(request: dict[str, Any]) -> Kept:
    """
    What is kept of the answer to a request.

    Args:
        request: As above; without an offer it is about all packages above.

    Returns:
        Candidates in order, what was excluded, single changes and today's run, in short.
    """
    given = msgspec.convert({"offer": _own()} | request, FitRequest)
    found: Kept = json.loads(msgspec.json.encode(fit(load_catalog(), given)))
    return {
        "selected": found["selected"] and found["selected"]["sku"],
        "candidates": [_candidate(c, launched=c["rank"] <= 2) for c in found["candidates"]],
        "excluded": [[g["requirement"], g["count"], g["skus"], g["reason"]] for g in found["excluded"]],
        "alternatives": [_change(a) for a in found["alternatives"]],
        "confirmations": found["confirmations"],
        "current": _today(found.get("current")),
    }


def _candidate(found: Kept, *, launched: bool = False) -> Kept:
    layout = {name: size for name, size in found["placement"].items() if size not in (None, 1)}
    memory, price, launch = found["memory"], found["price"], (found.get("launch") or {}) if launched else {}
    return {
        "order": f"{found['rank']} {found['sku']} {found['hosts']} x {found['gpus_per_host']} {found['weights_format']} "
        f"{found['kv_cache_dtype']} {found['sharding']} {json.dumps(layout)}",
        "status": found["status"],
        "requirements": {r["name"]: f"{r['status']}: {r['reason']}" for r in found["requirements"]},
        "memory": memory
        and [memory["required"], memory["headroom"], memory["per_gpu"], memory["phase"], memory["measured"]],
        "price": price
        and [str(price[n]) for n in ("amount", "for_duration", "billed_hours", "kind", "spot", "detail")],
        "why": found["why"],
        "maximum": found["maximum"],
        "launch": [launch.get("command"), launch.get("env"), launch.get("docker"), launch.get("notes")],
        "kubernetes": launch.get("kubernetes"),
    }


def _change(found: Kept) -> list[Any]:
    price = found.get("price") or {}
    names = ("field", "from", "to", "saves_bytes", "verdict", "risk")
    return [*(found.get(name) for name in names), str(price.get("for_duration"))]


def _today(found: Kept | None) -> Any:
    if found is None:
        return None
    changes = [[r["field"], r["from"], r["to"], r["saves_bytes"], r["verdict"]] for r in found.get("remedies", ())]
    return [_candidate(found["candidate"]), changes]


def kept() -> dict[str, Kept]:
    """The kept answers by request."""
    found: dict[str, Kept] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def write() -> None:
    """Write orders.json anew."""
    answers = {name: answer(request) for name, request in REQUESTS.items()}
    KEPT.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
