"""What a name that no field has may have meant: a slip of the keys, or the field's name in another tool."""

import difflib
from collections.abc import Collection, Sequence

OTHER_NAMES: dict[str, Sequence[str]] = {
    "model": ("model_name_or_path", "model_id", "model_name", "base_model", "hf_model"),
    "id": ("model_name_or_path",),
    "model.parameters": ("n_params", "params", "num_params", "num_parameters", "parameter_count"),
    "parameters": ("n_params", "params", "num_params", "num_parameters", "parameter_count"),
    "weights_format": ("quantization", "load_format", "quant", "precision", "weight_format", "weights"),
    "format": ("quantization", "load_format", "quant", "precision", "weight_format"),
    "dtype": ("torch_dtype",),
    "max_model_len": (
        *("ctx_size", "c", "num_ctx", "n_ctx", "ctx", "context", "context_length", "context_size", "ctx_len"),
        *("max_total_tokens", "max_seq_len", "max_context_length", "context_window", "max_length", "seq_len"),
    ),
    "max_num_seqs": ("max_running_requests", "max_batch_size", "batch_size", "n_parallel"),
    "max_num_batched_tokens": ("max_batch_prefill_tokens", "max_num_tokens", "max_prefill_tokens"),
    "kv_cache_dtype": ("cache_type_k", "ctk", "ollama_kv_cache_type", "kv_dtype", "kv_cache_type", "cache_dtype"),
    "k": ("ctk", "cache_type_k", "type_k"),
    "v": ("ctv", "cache_type_v", "type_v"),
    "gpu_memory_utilization": (
        *("mem_fraction_static", "cuda_memory_fraction", "free_gpu_memory_fraction", "gpu_memory_fraction"),
        *("kv_cache_free_gpu_memory_fraction", "gpu_util", "utilization"),
    ),
    "block_size": ("page_size", "tokens_per_block"),
    "enforce_eager": ("disable_cuda_graph",),
    "concurrency": ("users", "concurrent_requests", "num_users", "requests", "concurrent_users", "parallel_requests"),
    "input_tokens": ("isl", "input_len", "input_length", "prompt_tokens", "prompt_length"),
    "output_tokens": ("osl", "output_len", "output_length", "max_tokens", "max_new_tokens", "completion_tokens"),
    "max_loras": ("max_loras_per_batch",),
    "speculative": ("speculative_config",),
    "method": ("finetuning_type", "peft", "peft_method", "finetuning"),
    "num_speculative_tokens": ("speculative_num_steps", "draft_max"),
    "multimodal": ("limit_mm_per_prompt",),
    "encoder_tp_mode": ("mm_encoder_tp_mode",),
    "cudagraph_capture_sizes": ("cuda_graph_bs",),
    "enable_expert_parallel": ("ep",),
    "disable_cuda_graph": ("enforce_eager",),
    "page_size": ("block_size",),
    "n_gpu_layers": ("ngl", "num_gpu", "gpu_layers", "num_gpu_layers"),
    "n_batch": ("b", "num_batch"),
    "n_ubatch": ("ub",),
    "n_parallel": ("np", "ollama_num_parallel", "parallel", "slots"),
    "kv_unified": ("kvu",),
    "flash_attn": ("fa", "ollama_flash_attention", "flash_attention"),
    "cpu_moe_layers": ("n_cpu_moe",),
    "tensor_split": ("ts",),
    "no_kv_offload": ("nkvo",),
    "max_batch_size": ("max_num_seqs",),
    "max_num_tokens": ("max_num_batched_tokens",),
    "attn_implementation": ("attention_backend", "attention", "use_flash_attention_2"),
    "objective": ("stage", "task"),
    "rank": ("r", "lora_rank", "lora_r"),
    "alpha": ("lora_alpha",),
    "target_modules": ("lora_target", "lora_target_modules"),
    "dropout": ("lora_dropout",),
    "modules_to_save": ("additional_target",),
    "compute_dtype": ("bf16", "fp16", "bnb_4bit_compute_dtype", "mixed_precision"),
    "gradient_dtype": ("grad_reduce_in_fp32",),
    "master_weights": ("main_params",),
    "optimizer": ("optim",),
    "micro_batch_size": (
        *("per_device_train_batch_size", "train_micro_batch_size_per_gpu", "batch_size", "train_batch_size"),
        *("per_device_batch_size", "mbs"),
    ),
    "sequence_length": (
        *("max_length", "max_seq_length", "cutoff_len", "seq_length", "seq_len", "sequence_len", "max_seq_len"),
        *("context_length", "block_size"),
    ),
    "packed": ("packing", "sample_packing"),
    "gradient_checkpointing": ("recompute_granularity", "activation_checkpointing"),
    "cross_entropy": ("use_liger_kernel",),
    "compile": ("torch_compile",),
    "freeze_vision_tower": ("freeze_vit",),
    "freeze_multi_modal_projector": ("freeze_aligner",),
    "per_device_eval_batch_size": ("eval_batch_size", "eval_micro_batch_size"),
    "prediction_loss_only": ("compute_metrics",),
    "merge": ("merge_and_unload",),
    "state_dict_type": ("fsdp_state_dict_type",),
    "sharding": ("fsdp_sharding_strategy", "stage", "zero", "zero_stage", "deepspeed", "fsdp"),
    "gpu": ("gpu_name", "gpu_type", "gpu_model", "accelerator", "device", "card"),
    "tensor_parallel_size": (
        *("tp_size", "tp", "tensor_parallel", "tensor_model_parallel_size", "num_shard"),
        *("gpus", "num_gpus", "gpu_count", "n_gpus", "count", "num_gpu"),
    ),
    "pipeline_parallel_size": ("pp_size", "pp", "pipeline_parallel", "pipeline_model_parallel_size"),
    "data_parallel_size": ("dp_size", "dp", "data_parallel", "world_size", "num_gpus", "gpu_count", "num_processes"),
    "expert_parallel_size": ("ep_size", "ep", "expert_parallel", "expert_model_parallel_size"),
    "context_parallel_size": ("cp_size", "cp", "context_parallel"),
    "counter": ("max_memory_allocated", "max_memory_reserved"),
    "max_gpus": ("num_gpus", "gpu_count"),
    "max_price": ("budget", "max_cost", "price", "cost"),
    "duration": ("hours", "days", "rental_period", "term"),
    "providers": ("provider", "cloud", "vendor"),
    "regions": ("region", "location"),
    "skus": ("sku", "package", "instance_type"),
}
"""The field, and what other tools and people call the same thing; `docs/terms.md` has those of the tools."""


MOST = 3
"""Fields that one answer proposes. [unitless]"""


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


_FIELDS: dict[str, list[str]] = {}
for _field, _names in OTHER_NAMES.items():
    for _name in _names:
        _FIELDS.setdefault(_name, []).append(_field)


def near(name: str, known: Collection[str]) -> list[str]:
    """
    Fields that an unknown name may have meant.

    Args:
        name: As written.
        known: Fields that may stand there, each as it would be written there.

    Returns:
        Other tools' word for one of them first, then near spellings, best first.
    """
    plain = _plain(name)
    last = {
        field.rpartition(".")[2]: field for field in sorted(known, key=lambda field: field.count("."), reverse=True)
    }
    meant = [field if field in known else last.get(field) for field in _FIELDS.get(plain, ())]
    found = [field for field in dict.fromkeys(meant) if field and field != name]
    if plain in known and plain != name:
        found = [plain]
    return found[:MOST] or [k for k in difflib.get_close_matches(plain, list(known), n=MOST, cutoff=0.6) if k != name]
