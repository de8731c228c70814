"""
Records what llama-quantize makes of a model in every file type: tests/estimate/golden/llama_quantize.json.

    python benchmarks/golden/llama_quantize.py path/to/llama-quantize

Each model becomes a GGUF file with a real header and a hole in place of the data; `--dry-run` prints the type
llama.cpp chooses for every tensor, and the sizes follow from the block sizes of the gguf package. Names and shapes
are written down here, apart from the service's own reading of a config. Checked with llama.cpp 0c1e57098.
"""

import json
import re
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

import gguf
import numpy as np

GOLDEN = Path(__file__).parents[2] / "tests" / "estimate" / "golden" / "llama_quantize.json"
FILE_TYPES = (
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_XS",
    "IQ4_NL", "Q2_K_S", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K",
    "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4_MOE", "TQ1_0", "TQ2_0",
)  # fmt: skip
WITH_IMATRIX = {"IQ3_XXS"}
"""Recorded with an importance matrix, which changes the choice and which such files are made with."""

ARCHITECTURES = {
    "llama": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3", "gpt_oss": "gpt-oss", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
    "qwen3_next": "qwen3next", "phi3": "phi3", "gemma2": "gemma2", "falcon": "falcon", "lfm2": "lfm2",
}  # fmt: skip
LINE = re.compile(r"\[\s*\d+/\s*\d+\]\s+(\S+)\s+- \[[^\]]*\], type =\s+(\w+),(.*)")
CHOSEN = re.compile(r"->\s+[\d.]+ MiB \((\w+)\)|converting to (\w+)|(?:->|to)\s+(\w+)")

Tensors = dict[str, tuple[int, ...]]


def outside(config: dict) -> Tensors:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    tensors: Tensors = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        tensors["output.weight"] = (vocabulary, hidden)
    if config["model_type"] == "falcon":
        tensors["output_norm.bias"] = (hidden,)
    if config["model_type"] == "lfm2":
        tensors["token_embd_norm.weight"] = tensors.pop("output_norm.weight")
    return tensors


def heads(config: dict, *, gated: bool = False) -> Tensors:
    hidden, count, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", hidden // count)
    tensors: Tensors = {
        "attn_q.weight": (count * size * (2 if gated else 1), hidden),
        "attn_k.weight": (kv * size, hidden),
        "attn_v.weight": (kv * size, hidden),
        "attn_output.weight": (hidden, count * size),
    }
    kind = config["model_type"]
    if kind in ("qwen2", "gpt_oss"):
        tensors |= {f"attn_{part}.bias": tensors[f"attn_{part}.weight"][:1] for part in "qkv"}
    if kind == "gpt_oss":
        tensors |= {"attn_output.bias": (hidden,), "attn_sinks.weight": (count,)}
    if kind in ("qwen3", "qwen3_moe", "qwen3_next", "gemma3_text", "lfm2"):
        tensors |= {"attn_q_norm.weight": (size,), "attn_k_norm.weight": (size,)}
    return tensors


def fused_heads(config: dict) -> Tensors:
    hidden, count = config["hidden_size"], config["num_attention_heads"]
    kv = 1 if config.get("multi_query") else config["num_key_value_heads"]
    return {
        "attn_qkv.weight": ((count + 2 * kv) * hidden // count, hidden),
        "attn_output.weight": (hidden, hidden),
    }


def short_convolution(config: dict) -> Tensors:
    hidden = config["hidden_size"]
    return {
        "shortconv.in_proj.weight": (3 * hidden, hidden), "shortconv.out_proj.weight": (hidden, hidden),
        "shortconv.conv.weight": (hidden, config["conv_L_cache"]),
    }  # fmt: skip


def latent(config: dict) -> Tensors:
    hidden, count, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    queries = config.get("q_lora_rank")
    tensors: Tensors = {
        "attn_kv_a_norm.weight": (rank,), "attn_kv_a_mqa.weight": (rank + rope, hidden),
        "attn_k_b.weight": (count, rank, nope), "attn_v_b.weight": (count, value, rank),
        "attn_output.weight": (hidden, count * value),
    }  # fmt: skip
    if not queries:
        return tensors | {"attn_q.weight": (count * (nope + rope), hidden)}
    return tensors | {
        "attn_q_a.weight": (queries, hidden), "attn_q_a_norm.weight": (queries,),
        "attn_q_b.weight": (count * (nope + rope), queries),
    }  # fmt: skip


def delta(config: dict) -> Tensors:
    hidden = config["hidden_size"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    count, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    values = count * size
    return {
        "attn_qkv.weight": (2 * keys + values, hidden), "attn_gate.weight": (values, hidden),
        "ssm_conv1d.weight": (2 * keys + values, config["linear_conv_kernel_dim"]), "ssm_dt.bias": (count,),
        "ssm_a": (count,), "ssm_ba.weight": (2 * count, hidden), "ssm_norm.weight": (size,),
        "ssm_out.weight": (hidden, values),
    }  # fmt: skip


def dense(hidden: int, width: int, suffix: str = "", experts: tuple[int, ...] = ()) -> Tensors:
    return {
        f"ffn_gate{suffix}.weight": (*experts, width, hidden),
        f"ffn_up{suffix}.weight": (*experts, width, hidden),
        f"ffn_down{suffix}.weight": (*experts, hidden, width),
    }


def feed_forward(config: dict, layer: int) -> Tensors:
    hidden = config["hidden_size"]
    experts = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts")
    if config["model_type"] == "phi3":
        width = config["intermediate_size"]
        return {"ffn_up.weight": (2 * width, hidden), "ffn_down.weight": (hidden, width)}
    if config["model_type"] == "falcon":
        return {"ffn_up.weight": (4 * hidden, hidden), "ffn_down.weight": (hidden, 4 * hidden)}
    if not experts or layer < config.get("first_k_dense_replace", 0):
        return dense(hidden, config["intermediate_size"])
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    tensors = {"ffn_gate_inp.weight": (experts, hidden)} | dense(hidden, width, "_exps", (experts,))
    if config["model_type"] == "gpt_oss":
        biases = {k.replace("weight", "bias"): v[:2] for k, v in tensors.items() if "exps" in k}
        tensors |= biases | {"ffn_gate_inp.bias": (experts,)}
    shared = config.get("shared_expert_intermediate_size") or width * config.get("n_shared_experts", 0)
    if shared:
        tensors |= dense(hidden, shared, "_shexp")
    if config["model_type"] == "qwen3_next":
        tensors["ffn_gate_inp_shexp.weight"] = (hidden,)
    return tensors


def norms(config: dict) -> Tensors:
    kind, hidden = config["model_type"], (config["hidden_size"],)
    names = {"gpt_oss": ("attn_norm", "post_attention_norm"), "qwen3_next": ("attn_norm", "post_attention_norm")}
    chosen = names.get(kind, ("attn_norm", "ffn_norm"))
    if kind in ("gemma2", "gemma3_text"):
        chosen += ("post_attention_norm", "post_ffw_norm")
    if kind == "falcon":
        return {"attn_norm.weight": hidden, "attn_norm.bias": hidden}
    return {f"{name}.weight": hidden for name in chosen}


def mixer(config: dict, layer: int) -> Tensors:
    if "kv_lora_rank" in config:
        return latent(config)
    if config["model_type"] in ("phi3", "falcon"):
        return fused_heads(config)
    if config["model_type"] == "lfm2" and layer not in config["full_attn_idxs"]:
        return short_convolution(config)
    if config["model_type"] != "qwen3_next":
        return heads(config)
    return heads(config, gated=True) if (layer + 1) % config["full_attention_interval"] == 0 else delta(config)


def tensors_of(config: dict) -> Tensors:
    tensors = outside(config)
    for layer in range(config["num_hidden_layers"]):
        own = norms(config) | mixer(config, layer) | feed_forward(config, layer)
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    return tensors


def kv_heads(config: dict) -> int | list[int]:
    if "kv_lora_rank" in config or config.get("multi_query"):
        return 1
    kv = config["num_key_value_heads"]
    if "full_attn_idxs" not in config:
        return kv
    return [kv if layer in config["full_attn_idxs"] else 0 for layer in range(config["num_hidden_layers"])]


def header(config: dict) -> dict[str, int | float | list[int]]:
    experts = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts") or 0
    latent_model = "kv_lora_rank" in config
    size = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    values: dict[str, int | float | list[int]] = {
        "block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"], "shortconv.l_cache": config.get("conv_L_cache", 1),
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": kv_heads(config), "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-6, "context_length": config["max_position_embeddings"],
        "vocab_size": config["vocab_size"], "rope.freq_base": 1e6,
        "rope.dimension_count": config.get("qk_rope_head_dim", size),
    }  # fmt: skip
    if experts:
        values |= {
            "expert_count": experts, "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config.get("moe_intermediate_size") or config["intermediate_size"],
        }  # fmt: skip
    if "sliding_window" in config:
        values["attention.sliding_window"] = config["sliding_window"]
    if latent_model:
        rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
        values |= {
            "attention.key_length": rank + rope, "attention.value_length": rank, "attention.kv_lora_rank": rank,
            "attention.key_length_mla": config["qk_nope_head_dim"] + rope,
            "attention.value_length_mla": config["v_head_dim"], "expert_weights_scale": 1.0,
            "expert_shared_count": config["n_shared_experts"],
            "leading_dense_block_count": config["first_k_dense_replace"],
            **({"attention.q_lora_rank": config["q_lora_rank"]} if config.get("q_lora_rank") else {}),
        }  # fmt: skip
    else:
        values |= {"attention.key_length": size, "attention.value_length": size}
    if config["model_type"] == "qwen3_next":
        values |= {
            "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
            "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
            "ssm.time_step_rank": config["linear_num_value_heads"], "ssm.group_count": config["linear_num_key_heads"],
            "full_attention_interval": config["full_attention_interval"],
            "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
        }  # fmt: skip
    return values


def stays_wide(name: str, shape: tuple[int, ...]) -> bool:
    kept = (".bias", "ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight")
    return len(shape) == 1 or name.endswith(kept)


def write(path: Path, config: dict, tensors: Tensors) -> None:
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    kinds = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for key, value in header(config).items():
        kinds[type(value)](f"{architecture}.{key}", value)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    writer.add_file_type(1)
    total = 0
    for name, shape in tensors.items():
        dtype = np.float32 if stays_wide(name, shape) else np.float16
        size = prod(shape) * np.dtype(dtype).itemsize
        writer.add_tensor_info(name, list(shape), np.dtype(dtype), size)
        total += -(-size // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(-(-path.stat().st_size // 32) * 32 + total)


def importance_matrix(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("blk.0.attn_q.weight.in_sum2", np.ones((1, 2048), dtype=np.float32))
    writer.add_tensor("blk.0.attn_q.weight.counts", np.ones((1, 1), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def chosen_types(binary: str, path: Path, file_type: str, imatrix: Path | None) -> dict[str, str]:
    options = ["--imatrix", imatrix] if imatrix else []
    run = subprocess.run([binary, *options, "--dry-run", path, file_type], capture_output=True, text=True, check=False)
    types = {}
    for line in LINE.finditer(run.stdout + run.stderr):
        found = CHOSEN.search(line[3])
        types[line[1]] = next(group for group in found.groups() if group) if found else line[2]
    return types


def size_of(tensors: Tensors, types: dict[str, str]) -> int:
    total = 0
    for name, shape in tensors.items():
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[types[name].upper()]]
        total += prod(shape) // elements * size
    return total


def main() -> None:
    binary = sys.argv[1]
    recorded = json.loads(GOLDEN.read_text())
    with tempfile.TemporaryDirectory() as folder:
        imatrix = importance_matrix(Path(folder) / "imatrix.gguf")
        for name, model in recorded["models"].items():
            tensors, path = tensors_of(model["config"]), Path(folder) / "model.gguf"
            write(path, model["config"], tensors)
            model["bytes"] = {}
            for file_type in FILE_TYPES:
                types = chosen_types(binary, path, file_type, imatrix if file_type in WITH_IMATRIX else None)
                key = file_type.lower().removesuffix("_moe")
                model["bytes"][key] = size_of(tensors, types)
            print(name, len(model["bytes"]), flush=True)
    lines = [f" {json.dumps(name)}: {json.dumps(model)}" for name, model in recorded["models"].items()]
    body = ",\n".join(lines)
    GOLDEN.write_text(f'{{"source": {json.dumps(recorded["source"])}, "models": {{\n{body}\n}}}}\n')


if __name__ == "__main__":
    main()
