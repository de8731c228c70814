"""quantization_config of every quantizer in use, as their checkpoints write it."""

import pytest
from tests.estimate.stock import FORMATS

from tonnage.architecture.checkpoint_format import gguf_format_of, weight_format_of


def group(bits, kind="int", strategy=None, activations=None, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, **more}
    return {"targets": ["Linear"], "weights": weights, "input_activations": activations}


def compressed(*groups):
    return {"quant_method": "compressed-tensors", "config_groups": {f"group_{n}": g for n, g in enumerate(groups)}}


CONFIGS = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block-128x128"),
    ({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, "fp8-per-tensor"),
    ({"quant_method": "fbgemm_fp8"}, "fp8-per-channel-dynamic"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "gptq-w4-g128-sym"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-w8-g128"),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq-w4-channel"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "awq-w4-g128"),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq-w4-g64"),
    ({"quant_method": "intel/auto-round", "bits": 4, "group_size": 128}, "gptq-w4-g128-sym"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8"),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
         "bnb_4bit_use_double_quant": True}, "bnb-nf4-dq",
    ),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bnb-nf4"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-fp4"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "nvfp4"),
    ({"quant_algo": "FP8"}, "fp8-per-tensor"),
    (compressed(group(8, "float", "channel", {"num_bits": 8})), "fp8-per-channel-dynamic"),
    (compressed(group(8, "float", "tensor")), "fp8-per-tensor"),
    (compressed(group(8, "float", "block")), "fp8-block-128x128"),
    (compressed(group(4, "float", "tensor_group", group_size=16)), "nvfp4"),
    (compressed(group(4, "float", "group", group_size=32)), "mxfp4-linear"),
    (compressed(group(8, "int", "channel", {"num_bits": 8})), "int8-w8a8"),
    (compressed(group(4, "int", "group", group_size=128, symmetric=True)), "ct-w4a16-g128"),
    (compressed(group(4, "int", "group", group_size=32, symmetric=True)), "ct-w4a16-g32"),
    (compressed(group(4, "int", "group", group_size=128, symmetric=False)), "ct-w4a16-asym-g128"),
    (compressed(group(4, "int", "channel")), "ct-w4a16-channel"),
    (compressed(group(8, "float", "channel"), group(4, "float", group_size=16)), "nvfp4"),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "hqq-w4-g64"),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "torchao-int4-wo-g128"),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8-per-tensor"),
    ({"group_size": 64, "bits": 4}, "mlx-4bit-g64"),
    ({"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16}, "aqlm-2bit-1x16"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), CONFIGS, ids=[f"{n}-{e}" for n, (_, e) in enumerate(CONFIGS)])
def test_a_checkpoint_names_the_format_it_is_stored_in(config, expected):
    found = weight_format_of(config)

    assert expected == found
    assert found in FORMATS or any(found in f.aliases for f in FORMATS.values())


def test_a_plain_checkpoint_names_none():
    assert weight_format_of(None) is None
    assert weight_format_of({}) is None


def test_an_unknown_quantizer_names_none_rather_than_a_guess():
    assert weight_format_of({"quant_method": "a-new-one", "bits": 3}) is None


@pytest.mark.parametrize(
    ("number", "expected"), [(1, "gguf-f16"), (15, "gguf-q4-k-m"), (7, "gguf-q8-0"), (1024 + 18, "gguf-q6-k")]
)
def test_a_gguf_header_names_its_mix_by_number(number, expected):
    assert expected == gguf_format_of(number)
    assert expected in FORMATS


def test_a_removed_gguf_mix_names_none():
    assert gguf_format_of(33) is None
