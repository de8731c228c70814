"""
Sizing cards as nobody wrote them: stated ones with a few fields changed, dropped or added, from a seed.

What is wrong with a card is for the service to say; nothing here keeps a card valid.
"""

import copy
import random
from typing import Any, get_args

import msgspec

from tonnage.catalog import Catalog
from tonnage.spec import card as spec

Card = dict[str, Any]

PHASES = get_args(spec.PhaseOfFailure)
FRAMEWORKS = get_args(spec.Framework)
OBJECTIVES = get_args(spec.Objective)
METHODS = get_args(spec.Method)
SHARDINGS = get_args(spec.Sharding)
ENGINES = {str(kind.__struct_config__.tag): kind for kind in get_args(spec.Serving)}
LENGTHS = [1, 7, 128, 512, 1000, 2048, 4096, 8192, 20_000, 32_768, 131_072, 1_048_576]
COUNTS = [1, 2, 3, 4, 7, 8, 16, 32, 64, 256, 1024]
PARTS = [1, 1, 2, 2, 3, 4, 8, 16]
BOOLEANS = [True, False]
ATTENTION = ["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers"]
DTYPES = ["bf16", "fp16", "fp32", "auto", "fp8-per-tensor", "bfloat16", "float16"]
TARGETS = [
    ["q_proj", "v_proj"], ["all-linear"], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ["query_key_value"], ["embed_tokens", "lm_head"], ["in_proj", "out_proj"], ["c_attn"], ["query", "value"], ["nothing"],
    ["q_a_proj", "kv_b_proj"], ["gate", "experts"],
]  # fmt: skip
OPTIONAL_CONFIG = [
    "head_dim", "num_key_value_heads", "max_position_embeddings", "tie_word_embeddings", "torch_dtype", "rope_scaling",
    "sliding_window", "attention_bias", "use_sliding_window", "max_window_layers", "layer_types", "architectures",
]  # fmt: skip
SIZES = {
    "hidden_size": [256, 576, 768, 1024, 2048, 2560, 4096, 5120, 8192],
    "num_hidden_layers": [1, 2, 12, 24, 30, 47, 80],
    "intermediate_size": [512, 1536, 4864, 11008, 14336, 28672],
    "vocab_size": [1000, 32_000, 50_257, 128_256, 262_144],
    "num_attention_heads": [1, 4, 9, 12, 32, 64],
    "num_key_value_heads": [1, 2, 4, 8],
    "max_position_embeddings": [512, 4096, 131_072],
    "num_experts": [8, 64, 128],
    "n_routed_experts": [16, 64, 256],
}
SPECULATION = [
    {"method": "ngram", "num_speculative_tokens": 4}, {"method": "eagle", "num_speculative_tokens": 3},
    {"method": "eagle3", "model": "nobody/eagle3-head", "num_speculative_tokens": 3}, {"method": "mtp"},
    {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 5},
    {"method": "medusa", "model": {"parameters": 700_000_000}}, {"method": "deepseek_mtp", "num_speculative_tokens": 1},
]  # fmt: skip


class Mutator:
    """Random cards over one catalogue."""

    def __init__(self, catalog: Catalog, bases: list[Card], seed: int) -> None:
        self.draw = random.Random(seed)
        self.bases = bases
        self.models = sorted(m.id for m in catalog.models)
        self.gpus = sorted(g.id for g in catalog.gpus)
        self.formats = sorted(catalog.formats.entries)
        self.kv_formats = sorted(catalog.kv_formats.entries)
        self.optimizers = sorted(catalog.optimizers.entries)
        profiles = [*catalog.engines, *catalog.frameworks]
        self.versions = {p.id: [*(r.since for r in p.releases), p.known_until, "999.0", "0.0.1"] for p in profiles}

    def card(self) -> Card:
        """One card."""
        card = copy.deepcopy(self.draw.choice(self.bases))
        for _ in range(self.draw.choice([1, 2, 3, 5, 8, 12])):
            self.draw.choice(self._changes(card))(card)
        return card

    def _changes(self, card: Card) -> list[Any]:
        part = (
            [self._serving_field]
            if "serving" in card
            else [self._training_field]
            if "training" in card
            else [self._part]
        )
        return [
            self._model,
            self._config,
            self._gpu,
            self._weights,
            self._placement,
            self._drop,
            self._extras,
            self._version,
            self._part,
        ] + part * 6

    def _model(self, card: Card) -> None:
        draw = self.draw
        if draw.random() < 0.1:
            card["model"] = {"parameters": draw.choice([1, 124_000_000, 7_000_000_000, 1_000_000_000_000])}
            if draw.random() < 0.3:
                card["model"]["trainable_parameters"] = draw.choice([0, 40_000_000, 7_000_000_000])
        elif draw.random() < 0.5:
            card["model"] = draw.choice(self.models)
        else:
            card["model"] = copy.deepcopy(draw.choice(self.bases)["model"])

    def _config(self, card: Card) -> None:
        draw, model = self.draw, card["model"]
        if not isinstance(model, dict) or "config" not in model:
            return
        model.pop("parameters", None)
        config = model["config"]
        nested = [v for v in config.values() if isinstance(v, dict) and "hidden_size" in v]
        config = draw.choice([config, *nested])
        if draw.random() < 0.3:
            config.pop(draw.choice(OPTIONAL_CONFIG), None)
        else:
            known = [k for k in SIZES if k in config]
            if known:
                key = draw.choice(known)
                config[key] = draw.choice(SIZES[key])

    def _gpu(self, card: Card) -> None:
        card.setdefault("placement", {})["gpu"] = self.draw.choice(self.gpus)
        if self.draw.random() < 0.1:
            del card["placement"]["gpu"]

    def _weights(self, card: Card) -> None:
        draw = self.draw
        card["weights"] = draw.choice(
            [{}, {"format": draw.choice(self.formats)}, {"format": draw.choice(self.formats)}, {"bytes": "5 GiB"}]
        )

    def _placement(self, card: Card) -> None:
        name = self.draw.choice(["tensor", "pipeline", "data", "expert", "context"])
        card.setdefault("placement", {})[f"{name}_parallel_size"] = self.draw.choice(PARTS)

    def _drop(self, card: Card) -> None:
        part = self.draw.choice([card[k] for k in ("weights", "serving", "training", "placement") if k in card])
        names = [k for k in part if k not in ("engine", "framework")]
        if names:
            del part[self.draw.choice(names)]

    def _version(self, card: Card) -> None:
        for part, tag, field in (
            ("serving", "engine", "engine_version"),
            ("training", "framework", "framework_version"),
        ):
            if part in card:
                card[part][field] = self.draw.choice(self.versions[card[part].get(tag, "transformers")])

    def _part(self, card: Card) -> None:
        draw = self.draw
        old = card.pop("serving", {})
        card.pop("training", None)
        if draw.random() < 0.6:
            engine = draw.choice(list(ENGINES))
            common = {f.name for f in msgspec.structs.fields(spec.ServingCommon)} - {"engine_version"}
            card["serving"] = {k: v for k, v in old.items() if k in common} | {"engine": engine}
        elif draw.random() < 0.9:
            card["training"] = {"framework": draw.choice(FRAMEWORKS), "method": draw.choice(METHODS)}

    def _extras(self, card: Card) -> None:
        draw = self.draw
        card["reserve"] = draw.choice([0, "6 GiB", {"fraction": 0.2}])
        if draw.random() < 0.4:
            card["failure"] = draw.choice(
                [{"phase": draw.choice(PHASES)}, {"message": "CUDA out of memory. Tried to allocate 2.00 GiB"}]
            )
        if draw.random() < 0.3:
            card["measurements"] = [
                {
                    "counter": draw.choice(["allocated", "reserved", "device"]),
                    "peak_bytes": "20 GiB",
                    "phase": draw.choice([None, *PHASES]),
                }
            ]

    def _serving_field(self, card: Card) -> None:
        serving = card["serving"]
        kind = ENGINES[serving["engine"]]
        field = self.draw.choice([f.name for f in msgspec.structs.fields(kind)])
        value = self._serving_value(field)
        if value is not None:
            serving[field] = value

    def _serving_value(self, field: str) -> Any:
        draw = self.draw
        choices: dict[str, list[Any]] = {
            "dtype": DTYPES,
            "kv_cache_dtype": [
                "auto",
                "fp8",
                "fp8_e5m2",
                "q8_0",
                "q4_0",
                "int8",
                draw.choice(self.kv_formats),
                {"k": "q8_0", "v": draw.choice(self.kv_formats)},
            ],
            "gpu_memory_utilization": [0.05, 0.3, 0.7, 0.85, 0.9, 0.95, 1.0],
            "free_gpu_memory_fraction": [0.1, 0.9, 1.0],
            "kv_cache_memory_bytes": ["1 GiB", "40 GiB", 0],
            "block_size": [1, 16, 32, 64, 128, 100],
            "lora": [
                {"max_loras": draw.choice([1, 4, 40]), "max_lora_rank": draw.choice([8, 64, 256])},
                {"target_modules": draw.choice(TARGETS)},
            ],
            "speculative": SPECULATION,
            "multimodal": [
                {"images_per_prompt": draw.choice([0, 1, 16])},
                {"language_model_only": True},
                {"videos_per_prompt": 2, "audios_per_prompt": 1},
                {"encoder_tp_mode": "data"},
            ],
            "cudagraph_capture_sizes": [[1, 2, 4], [8], [1, 512]],
            "tensor_split": [[1], [3, 1], [1, 1, 1], [0, 1], [0, 0]],
            "attn_implementation": ATTENTION,
            "cache_implementation": ["dynamic", "static", "sliding_window", "quantized", "offloaded", "hybrid"],
            "swap_space": [0, 4, 4.5],
            "cpu_offload_gb": [0, 10, 1000],
            "n_gpu_layers": [0, 1, 20, 99],
            "cpu_moe_layers": [0, 3, 99],
            "backend": ["pytorch", "tensorrt"],
            "cudagraph_max_capture_size": [0, 1, 256, 2048],
            "engine_version": [None],
        }
        if field in choices:
            return draw.choice(choices[field])
        if field.startswith(("enable_", "enforce", "disable", "kv_unified", "flash", "swa", "no_kv")):
            return draw.choice(BOOLEANS)
        lengths = ("max_model_len", "tokens", "chunked_prefill_size", "prefill_step_size")
        return draw.choice(LENGTHS if field.endswith(lengths) else COUNTS)

    def _training_field(self, card: Card) -> None:
        draw, training = self.draw, card["training"]
        choices: dict[str, list[Any]] = {
            "framework": list(FRAMEWORKS),
            "objective": list(OBJECTIVES),
            "method": list(METHODS),
            "sharding": list(SHARDINGS),
            "num_generations": COUNTS[:6],
            "weight_dtype": DTYPES,
            "compute_dtype": DTYPES,
            "gradient_dtype": DTYPES,
            "master_weights": BOOLEANS,
            "optimizer_implementation": ["fused", "foreach", "for_loop"],
            "optimizer": self.optimizers,
            "optimizer_in_backward": BOOLEANS,
            "micro_batch_size": COUNTS,
            "sequence_length": LENGTHS,
            "sequence_lengths": ["fixed", "varying"],
            "packed": BOOLEANS,
            "gradient_accumulation_steps": COUNTS,
            "gradient_checkpointing": ["none", "selective", "full"],
            "attn_implementation": ATTENTION,
            "cross_entropy": ["full", "chunked", "fused_linear"],
            "sequence_parallel": BOOLEANS,
            "virtual_pipeline_model_parallel_size": COUNTS[:6],
            "vllm_gpu_memory_utilization": [0.1, 0.3, 1.0],
            "vllm_enable_sleep_mode": BOOLEANS,
            "compile": BOOLEANS,
            "offload": [
                {"parameters": True},
                {"optimizer": True},
                {"activations": True},
                {"parameters": True, "optimizer": True, "activations": True},
                {"parameters": True, "optimizer": True, "device": "nvme"},
            ],
            "evaluation": [
                {},
                {"per_device_eval_batch_size": draw.choice(COUNTS), "samples": draw.choice(COUNTS)},
                {"prediction_loss_only": False, "samples": draw.choice(COUNTS)},
                {"prediction_loss_only": False, "eval_accumulation_steps": draw.choice(COUNTS), "sequence_length": 512},
            ],
            "export": [
                {},
                {"merge": True},
                {"state_dict_type": "sharded"},
                {"state_dict_type": "full", "optimizer": True},
            ],
            "lora": [
                {"rank": draw.choice([1, 8, 64, 1024]), "target_modules": draw.choice(TARGETS)},
                {"rank": 16},
                {
                    "rank": 8,
                    "dropout": 0.1,
                    "dtype": draw.choice(DTYPES),
                    "modules_to_save": ["lm_head", "embed_tokens"],
                },
                {"rank": 8, "trainable_parameters": 20_000_000},
            ],
            "library_versions": [
                {
                    "torch": draw.choice(["1.13", "2.1", "2.9"]),
                    "transformers": draw.choice(["4.30", "4.46", "5.2"]),
                    "peft": "0.4.0",
                },
                {"peft": "99"},
            ],
        }
        field = draw.choice(list(choices))
        training[field] = draw.choice(choices[field])
