"""
The storage format a checkpoint names in its `quantization_config`, as a catalogue id.

Every quantizer writes its own keys; one function per quantizer reads them. Which modules it leaves
plain is read in `estimate/quantization.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]


def weight_format_of(quantization_config: Config | None) -> str | None:
    """
    Format of a checkpoint's quantized matrices.

    Args:
        quantization_config: As in config.json (or MLX's `quantization`); None or {} for a plain checkpoint.

    Returns:
        Catalogue id such as "fp8-block-128x128"; None for a plain checkpoint, and for settings that no format stands for.
    """
    if not quantization_config:
        return None
    method = _method(quantization_config)
    reader = _READERS.get(method)
    return reader(quantization_config) if reader is not None else None


def _method(config: Config) -> str:
    stated = config.get("quant_method") or (config.get("quant_algo") and "modelopt")
    if not stated:
        stated = next((method for key, method in _IMPLIED.items() if key in config), "")
    return str(getattr(stated, "value", stated)).lower().replace("_", "-")


_IMPLIED = {
    "config_groups": "compressed-tensors", "load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes", "bits": "mlx",
}  # fmt: skip
"""Key that gives a method away where `quant_method` is not stated."""


def _fp8(config: Config) -> str | None:
    if str(config.get("quant_algo", "")).upper() == "MIXED_PRECISION" and config.get("config_groups"):
        return _compressed_tensors(config)
    if config.get("weight_block_size"):
        return "fp8-block-128x128"
    return "fp8-per-tensor"


def _grouped(prefix: str, bits: Any, group_size: Any, suffix: str = "") -> str:
    if group_size in (None, 0, -1):
        return f"{prefix}-w{bits}-channel"
    return f"{prefix}-w{bits}-g{group_size}{suffix}"


def _gptq(config: Config) -> str:
    bits = config.get("bits", 4)
    return _grouped("gptq", bits, config.get("group_size", 128), "-sym" if bits == 4 else "")


def _awq(config: Config) -> str:
    bits = config.get("bits", config.get("w_bit", 4))
    return _grouped("awq", bits, config.get("group_size", config.get("q_group_size", 128)))


def _auto_round(config: Config) -> str:
    packing = str(config.get("packing_format", config.get("backend", "")))
    return _awq(config) if "awq" in packing else _gptq(config)


def _bitsandbytes(config: Config) -> str:
    if config.get("load_in_8bit") or config.get("_load_in_8bit"):
        return "bnb-int8"
    kind = str(config.get("bnb_4bit_quant_type", "fp4"))
    return f"bnb-{kind}-dq" if kind == "nf4" and config.get("bnb_4bit_use_double_quant") else f"bnb-{kind}"


def _compressed_tensors(config: Config) -> str | None:
    """Format of the group that holds the narrowest weights: the bulk of a mixed checkpoint."""
    groups = [g for g in (config.get("config_groups") or {}).values() if isinstance(g, Mapping) and g.get("weights")]
    if not groups:
        return None
    return group_format(min(groups, key=lambda group: group["weights"].get("num_bits", 8)))


def group_format(group: Config) -> str | None:
    """Format of one entry of `config_groups`."""
    weights = group["weights"]
    bits, strategy, group_size = weights.get("num_bits", 8), weights.get("strategy"), weights.get("group_size")
    if strategy is None:
        strategy = "group" if group_size else "tensor"
    if weights.get("type", "int") == "float":
        return _float_group(bits, strategy, group_size)
    if bits == 8 and group.get("input_activations"):
        return "int8-w8a8"
    return _integer_group(bits, strategy, group_size, symmetric=weights.get("symmetric", True))


def _float_group(bits: int, strategy: str, group_size: int | None) -> str:
    if bits == 4:
        return "mxfp4-linear" if group_size == 32 else "nvfp4"
    if group_size == 32:
        return "mxfp8"
    return {"block": "fp8-block-128x128", "channel": "fp8-per-channel-dynamic"}.get(strategy, "fp8-per-tensor")


def _integer_group(bits: int, strategy: str, group_size: int | None, *, symmetric: bool) -> str:
    asymmetric = "" if symmetric else "-asym"
    group = f"g{group_size}" if strategy in ("group", "tensor_group") and group_size else "channel"
    return f"ct-w{bits}a16{asymmetric}-{group}"


def _modelopt(config: Config) -> str | None:
    nested = config.get("quantization") or {}
    algorithm = str(config.get("quant_algo") or nested.get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        layers = config.get("quantized_layers") or {}
        algorithms = [
            str(layer.get("quant_algo", "")).upper() for layer in layers.values() if isinstance(layer, Mapping)
        ]
        algorithm = "NVFP4" if "NVFP4" in algorithms or not algorithms else algorithms[0]
    return _MODELOPT.get(algorithm) or _compressed_tensors(config)


_MODELOPT = {
    "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4", "W4A8_NVFP4_FP8": "nvfp4", "MXFP8": "mxfp8",
    "FP8": "fp8-per-tensor", "FP8_PER_CHANNEL_PER_TOKEN": "fp8-per-channel-dynamic",
    "FP8_PB_WO": "fp8-block-128x128", "FP8_PB_REAL": "fp8-block-128x128",
    "W4A16_AWQ": "awq-w4-g128", "INT4_AWQ": "awq-w4-g128", "W4A8_AWQ": "w4afp8-g128", "INT8_SQ": "int8-w8a8",
    "W8A8_SQ_PER_CHANNEL": "int8-w8a8",
    "W4A8_MXFP4_FP8": "mxfp4-linear",
}  # fmt: skip


def _quark(config: Config) -> str | None:
    weight = (config.get("global_quant_config") or {}).get("weight") or {}
    if isinstance(weight, list):
        weight = weight[-1]
    dtype, scheme = str(weight.get("dtype", "")), str(weight.get("qscheme", ""))
    if dtype.startswith("fp8"):
        return "fp8-per-channel-dynamic" if scheme == "per_channel" else "fp8-per-tensor"
    return {"fp4": "mxfp4-linear", "mxfp4": "mxfp4-linear", "int8": "int8-w8a8", "int4": "ct-w4a16-g128"}.get(dtype)


def _hqq(config: Config) -> str:
    inner = config.get("quant_config") or config
    weights = inner.get("weight_quant_params") or inner
    return _grouped("hqq", weights.get("nbits", weights.get("bits", 4)), weights.get("group_size", 64))


def _torchao(config: Config) -> str | None:
    kind = str(config.get("quant_type", "")).lower()
    for part, found in (
        ("float8", "torchao-fp8"), ("fp8", "torchao-fp8"), ("int4", "torchao-int4-wo-g128"), ("int8", "torchao-int8-wo"),
    ):  # fmt: skip
        if part in kind:
            return found
    return None


def _mlx(config: Config) -> str:
    if config.get("mode") in ("mxfp4", "mxfp8", "nvfp4"):
        return {"mxfp4": "mxfp4-linear"}.get(config["mode"], str(config["mode"]))
    return f"mlx-{config.get('bits', 4)}bit-g{config.get('group_size', 64)}"


def _aqlm(config: Config) -> str:
    return "aqlm-2bit-1x16" if config.get("num_codebooks", 1) == 1 else "aqlm-2bit-2x8"


def gguf_format_of(file_type: int) -> str | None:
    """
    Format of a GGUF file by its `general.file_type`.

    Args:
        file_type: llama.cpp's number of the mix.

    Returns:
        Catalogue id such as "gguf-q4-k-m"; None for a number that no format stands for.
    """
    return _FILE_TYPES.get(file_type % _GUESSED)


_GUESSED = 1024
"""Added to the number when llama.cpp guessed it. [unitless]"""
_FILE_TYPES = {
    number: f"gguf-{name}"
    for number, name in {
        0: "f32", 1: "f16", 2: "q4-0", 3: "q4-1", 7: "q8-0", 8: "q5-0", 9: "q5-1", 10: "q2-k", 11: "q3-k-s",
        12: "q3-k-m", 13: "q3-k-l", 14: "q4-k-s", 15: "q4-k-m", 16: "q5-k-s", 17: "q5-k-m", 18: "q6-k",
        19: "iq2-xxs", 20: "iq2-xs", 21: "q2-k-s", 22: "iq3-xs", 23: "iq3-xxs", 24: "iq1-s", 25: "iq4-nl",
        26: "iq3-s", 27: "iq3-m", 28: "iq2-s", 29: "iq2-m", 30: "iq4-xs", 31: "iq1-m", 32: "bf16", 36: "tq1-0",
        37: "tq2-0", 38: "mxfp4",
    }.items()
}  # fmt: skip
"""`llama_ftype` of ggml-org/llama.cpp@0c1e57098 include/llama.h."""


_READERS: dict[str, Callable[[Config], str | None]] = {
    "fp8": _fp8, "fbgemm-fp8": lambda _: "fp8-per-channel-dynamic", "finegrained-fp8": lambda _: "fp8-block-128x128",
    "compressed-tensors": _compressed_tensors, "gptq": _gptq, "gptqmodel": _gptq, "gptq-marlin": _gptq, "awq": _awq,
    "awq-marlin": _awq, "auto-round": _auto_round, "intel/auto-round": _auto_round, "bitsandbytes": _bitsandbytes,
    "mxfp4": lambda _: "mxfp4", "modelopt": _modelopt, "modelopt-fp4": lambda _: "nvfp4", "modelopt-mixed": _modelopt,
    "quark": _quark, "hqq": _hqq, "torchao": _torchao, "quanto": lambda _: "quanto-int4", "aqlm": _aqlm,
    "exl2": lambda _: "exl2", "exl3": lambda _: "exl3", "bitnet": lambda _: "bitnet-1.58-i2s", "mlx": _mlx,
    "eetq": lambda _: "torchao-int8-wo",
}  # fmt: skip
