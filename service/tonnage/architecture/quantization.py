"""`quantization_config` of a checkpoint -> id of the weight format it is stored in."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tonnage.errors import Unsupported

Config = Mapping[str, Any]


def weight_format_of(config: Config | None) -> str | None:
    """
    Catalogue id of the format a checkpoint is stored in.

    Args:
        config: Its `quantization_config`, None without one.

    Returns:
        The id; None for a plain checkpoint.

    Raises:
        Unsupported: A method or a combination of its settings that no catalogue format stands for.
    """
    if not config:
        return None
    method = _method(config)
    found = _READERS[method](config) if method in _READERS else None
    if found is None:
        raise Unsupported(
            f"quantization_config of method {method or 'unknown'!r} with these settings stands for no known weight "
            "format; state weights.format",
            _READERS,
            pointer="/model/config/quantization_config",
        )
    return found


def _method(config: Config) -> str:
    stated = config.get("quant_method") or ("modelopt" if config.get("quant_algo") else "")
    if not stated and "bits" in config and "group_size" in config:
        return "mlx"
    if not stated and ("load_in_4bit" in config or "load_in_8bit" in config):
        return "bitsandbytes"
    return str(stated).lower().replace("_", "-")


def _fp8(config: Config) -> str | None:
    if config.get("config_groups"):
        return _groups(config)
    block = config.get("weight_block_size")
    if not block:
        return "fp8-per-tensor"
    return f"fp8-block-{block[0]}x{block[1]}" if isinstance(block, list | tuple) and len(block) == 2 else None


_ALGORITHMS = {
    "FP8": "fp8-per-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-per-channel-dynamic",
    "FP8_PB_WO": "fp8-block-128x128",
    "FP8_PB_REAL": "fp8-block-128x128",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MIXED_PRECISION": "nvfp4",
    "MXFP8": "mxfp8",
    "W4A16_AWQ": "awq-w4-g128",
    "W4A8_AWQ": "w4afp8-g128",
    "INT4_AWQ": "awq-w4-g128",
    "INT8_SQ": "int8-w8a8",
    "W8A8_SQ_PER_CHANNEL": "int8-w8a8",
}


def _modelopt(config: Config) -> str | None:
    algorithm = str(config.get("quant_algo") or (config.get("quantization") or {}).get("quant_algo") or "").upper()
    return _ALGORITHMS.get(algorithm) or _groups(config)


def _groups(config: Config) -> str | None:
    """Narrowest format of the groups: in a mixed checkpoint the bulk is stored in it, the rest is named."""
    groups = config.get("config_groups")
    values: Iterable[Any] = groups.values() if isinstance(groups, Mapping) else ()
    weights = [(g.get("weights") or {}, g.get("input_activations")) for g in values if isinstance(g, Mapping)]
    weights.sort(key=lambda pair: pair[0].get("num_bits") or 16)
    return _group(*weights[0]) if weights else None


def _group(weights: Config, activations: Config | None) -> str | None:
    bits, size, kind = weights.get("num_bits"), weights.get("group_size"), weights.get("type")
    strategy = weights.get("strategy") or ("group" if size else "tensor")
    if kind == "float":
        return _float_group(bits, size, strategy)
    if bits == 8:
        return "int8-w8a8" if activations or strategy != "group" else f"ct-w8a16-g{size}"
    if strategy != "group" or bits is None:
        return None
    return f"ct-w{bits}a16-{'' if weights.get('symmetric', True) else 'asym-'}g{size}"


def _float_group(bits: Any, size: Any, strategy: str) -> str | None:
    if bits == 4:
        return {16: "nvfp4", 32: "mxfp4"}.get(size)
    by_strategy = {"tensor": "fp8-per-tensor", "channel": "fp8-per-channel-dynamic", "block": "fp8-block-128x128"}
    return "mxfp8" if strategy == "group" else by_strategy.get(strategy)


def _gptq(config: Config) -> str:
    bits, size = config.get("bits", 4), config.get("group_size", 128)
    return f"gptq-w{bits}-g{size}{'-sym' if bits == 4 else ''}"


def _awq(config: Config) -> str:
    bits = config.get("bits") or config.get("w_bit") or 4
    return f"awq-w{bits}-g{config.get('group_size') or config.get('q_group_size') or 128}"


def _bitsandbytes(config: Config) -> str:
    if config.get("load_in_8bit") or config.get("_load_in_8bit"):
        return "bnb-int8"
    if config.get("bnb_4bit_quant_type") == "fp4":
        return "bnb-fp4"
    return "bnb-nf4-dq" if config.get("bnb_4bit_use_double_quant") else "bnb-nf4"


def _hqq(config: Config) -> str:
    parameters = (config.get("quant_config") or config).get("weight_quant_params") or config
    return f"hqq-w{parameters.get('nbits', 4)}-g{parameters.get('group_size', 64)}"


def _aqlm(config: Config) -> str | None:
    books = (config.get("num_codebooks"), config.get("nbits_per_codebook"))
    return {(1, 16): "aqlm-2bit-1x16", (2, 8): "aqlm-2bit-2x8"}.get(books)  # type: ignore[arg-type]


def _torchao(config: Config) -> str | None:
    kind = str(config.get("quant_type", "")).lower()
    words = {"int4": "torchao-int4-wo-g128", "int8": "torchao-int8-wo", "float8": "torchao-fp8"}
    return next((name for word, name in words.items() if word in kind), None)


def _mlx(config: Config) -> str:
    return f"mlx-{config.get('bits', 4)}bit-g{config.get('group_size', 64)}"


_READERS: dict[str, Callable[[Config], str | None]] = {
    "fp8": _fp8,
    "fbgemm-fp8": lambda _: "fp8-per-channel-dynamic",
    "mxfp4": lambda _: "mxfp4",
    "mxfp8": lambda _: "mxfp8",
    "modelopt": _modelopt,
    "modelopt-fp4": lambda _: "nvfp4",
    "compressed-tensors": _groups,
    "gptq": _gptq,
    "gptqmodel": _gptq,
    "auto-round": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "hqq": _hqq,
    "aqlm": _aqlm,
    "torchao": _torchao,
    "mlx": _mlx,
    "exl2": lambda _: "exl2",
    "exl3": lambda _: "exl3",
    "quanto": lambda config: f"quanto-{config.get('weights', 'int4')}",
    "bitnet": lambda _: "bitnet-1.58-i2s",
}
