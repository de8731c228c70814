"""
How a fine-tuning job is started: its framework's command, and the configuration file that the command reads.

Source:
    axolotl-ai-cloud/axolotl docs/config-reference; hiyouga/LLaMA-Factory src/llamafactory/hparams and examples/train_lora;
    wheel litgpt 0.5.11 litgpt/finetune; huggingface/transformers TrainingArguments
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tonnage.fit.packages import Order
from tonnage.fit.servers import Flags, written
from tonnage.fit.technical import Technical
from tonnage.spec.card import Training

Keys = Iterator[tuple[str, Any]]
PIPELINED = {"megatron", "torchtitan", "deepspeed"}
"""Frameworks with pipeline stages of their own; the others spread layers by device_map."""
_OWN_SCRIPTS = {"megatron", "torchtitan", "unsloth"}
_OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw_8bit": "adamw_8bit", "paged_adamw": "paged_adamw_32bit", "lion": "lion_32bit",
}  # fmt: skip
_STAGES = {"pretrain": "pt", "reward": "rm"}
_ATTENTION = {"flash_attention_2": "fa2", "sdpa": "sdpa", "eager": "disabled"}


def command(technical: Technical, order: Order, training: Training, model: str) -> Iterator[str]:
    """The command of a framework, with what it takes as flags."""
    processes = _processes(technical, training.framework)
    per_host = str(min(processes, order.package.gpus_per_host))
    if training.framework == "torchtune":
        yield from ("tune", "run", "--nproc_per_node", per_host, "recipe.py", "--config", "config.yaml")
    elif training.framework == "litgpt":
        recipe = "finetune_full" if training.method == "full" else "finetune_lora"
        yield from ("litgpt", recipe, model, "--devices", str(processes))
        yield from written(_litgpt(training))
    elif training.framework == "axolotl":
        yield from ("axolotl", "train", "config.yaml")
    elif training.framework == "llama-factory":
        yield from ("llamafactory-cli", "train", "config.yaml")
    else:
        hosts = ("--nnodes", str(order.hosts)) if order.hosts > 1 else ()
        yield from ("torchrun", "--nproc-per-node", per_host, *hosts, "train.py")
        yield from written(_trainer_flags(training))


def files(technical: Technical, training: Training, model: str) -> dict[str, str]:
    """Files that the command reads, by name; empty for frameworks that are told by flags or scripts of the caller's."""
    keys = _CONFIGS.get(training.framework)
    if keys is None:
        return {}
    sharding = technical.sharding or training.sharding
    lines = [f"{name}: {json.dumps(value)}" for name, value in keys(training, model, sharding) if value is not None]
    return {"config.yaml": "\n".join([*lines, ""])}


def _processes(technical: Technical, framework: str) -> int:
    """One per GPU, or one per copy where a framework spreads the layers of a copy over several GPUs by itself."""
    if framework in PIPELINED:
        return technical.used
    return technical.used // technical.placement.pipeline_parallel_size


def _trainer_flags(training: Training) -> Flags:
    if training.framework not in _OWN_SCRIPTS:
        yield "--per_device_train_batch_size", training.micro_batch_size
        yield "--gradient_accumulation_steps", training.gradient_accumulation_steps
        yield "--gradient_checkpointing", {"full": "true", "none": "false"}.get(training.gradient_checkpointing or "")
        yield "--max_length", training.sequence_length


def _litgpt(training: Training) -> Flags:
    yield "--train.micro_batch_size", training.micro_batch_size
    yield "--train.max_seq_length", training.sequence_length
    if training.method != "full":
        yield "--lora_r", None if training.lora is None else training.lora.rank
        yield "--quantize", "bnb.nf4" if training.method == "qlora" else None


def _checkpoints(training: Training) -> bool | None:
    return {"full": True, "none": False}.get(training.gradient_checkpointing or "")


def _optimizer(training: Training) -> str | None:
    stated = training.optimizer
    return None if stated is None else _OPTIMIZERS.get(stated, stated)


def _adapter(training: Training) -> bool:
    return training.method in {"lora", "qlora", "dora"}


def _axolotl(training: Training, model: str, sharding: str | None) -> Keys:
    lora, kernel = training.lora if _adapter(training) else None, training.attn_implementation
    yield "base_model", model
    yield "adapter", {"lora": "lora", "qlora": "qlora", "dora": "lora"}.get(training.method)
    yield "load_in_4bit", training.method == "qlora" or None
    yield "peft_use_dora", training.method == "dora" or None
    if lora is not None:
        yield "lora_r", lora.rank
        yield "lora_alpha", lora.alpha
        yield "lora_dropout", lora.dropout
        everywhere = lora.target_modules == ["all-linear"]
        yield "lora_target_linear", everywhere or None
        yield "lora_target_modules", None if everywhere else lora.target_modules
    yield "sequence_len", training.sequence_length
    yield "sample_packing", training.packed
    yield "micro_batch_size", training.micro_batch_size
    yield "gradient_accumulation_steps", training.gradient_accumulation_steps
    yield "gradient_checkpointing", _checkpoints(training)
    yield "optimizer", _optimizer(training)
    yield "bf16", {"bf16": True, "fp16": False}.get(training.compute_dtype or "")
    yield "fp16", training.compute_dtype == "fp16" or None
    yield "flash_attention", kernel == "flash_attention_2" or None
    yield "sdp_attention", kernel == "sdpa" or None
    zero = (sharding or "").removeprefix("zero")
    yield "deepspeed", f"deepspeed_configs/zero{zero}.json" if zero in {"1", "2", "3"} else None


def _llama_factory(training: Training, model: str, sharding: str | None) -> Keys:
    lora = training.lora if _adapter(training) else None
    yield "model_name_or_path", model
    yield "stage", _STAGES.get(training.objective, training.objective)
    yield "do_train", True
    yield "finetuning_type", "lora" if _adapter(training) else training.method
    yield "use_dora", training.method == "dora" or None
    yield "quantization_bit", 4 if training.method == "qlora" else None
    if lora is not None:
        yield "lora_rank", lora.rank
        yield "lora_alpha", None if lora.alpha is None else int(lora.alpha)
        yield "lora_dropout", lora.dropout
        modules = lora.target_modules
        yield "lora_target", None if modules is None else "all" if modules == ["all-linear"] else ",".join(modules)
    yield "cutoff_len", training.sequence_length
    yield "packing", training.packed
    yield "per_device_train_batch_size", training.micro_batch_size
    yield "gradient_accumulation_steps", training.gradient_accumulation_steps
    yield "disable_gradient_checkpointing", training.gradient_checkpointing == "none" or None
    yield "optim", _optimizer(training)
    yield "bf16", training.compute_dtype == "bf16" or None
    yield "fp16", training.compute_dtype == "fp16" or None
    yield "flash_attn", _ATTENTION.get(training.attn_implementation or "")
    zero = (sharding or "").removeprefix("zero")
    yield "deepspeed", f"examples/deepspeed/ds_z{zero}_config.json" if zero in {"0", "2", "3"} else None


_CONFIGS: dict[str, Callable[[Training, str, str | None], Keys]] = {
    "axolotl": _axolotl,
    "llama-factory": _llama_factory,
}
WITH_FILES = frozenset(_CONFIGS)
"""Frameworks whose configuration file is made."""
