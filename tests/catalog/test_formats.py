"""Weight and cache formats: blocks as their sources give them, names that mean one thing each."""

from collections import Counter

import gguf
import pytest
from tests.estimate.stock import FORMATS, KV_FORMATS

from tonnage.estimate.shards import matrix_bytes

SIDE = 16_384
GGML = {"ggml-" + kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
OF_OTHER_SIZE = {"exl2", "aqlm-2bit-1x16"}
"""Mixed widths, and a code book that weighs more in smaller matrices."""


@pytest.mark.parametrize("name", [f.id for f in FORMATS.values() if f.kind == "tensor-type"])
def test_ggml_types_have_the_blocks_of_the_gguf_package(name):
    assert GGML[name] == (FORMATS[name].block_elements, FORMATS[name].block_bytes)


@pytest.mark.parametrize("name", [f.id for f in FORMATS.values() if f.kind == "linear" and f.effective_bits])
def test_a_large_matrix_takes_the_bits_its_source_states(name):
    bits = 8 * matrix_bytes(SIDE, SIDE, FORMATS[name]) / SIDE**2

    assert FORMATS[name].effective_bits == pytest.approx(bits, rel=0.02 if name in OF_OTHER_SIZE else 0.003)


@pytest.mark.parametrize("name", [f.id for f in FORMATS.values() if f.kind == "file-mix"])
def test_a_file_mix_starts_from_a_tensor_type_of_the_catalogue(name):
    base = FORMATS[FORMATS[name].base_type]

    assert (base.block_elements, base.block_bytes) == (FORMATS[name].block_elements, FORMATS[name].block_bytes)


@pytest.mark.parametrize("records", [FORMATS, KV_FORMATS], ids=["weights", "caches"])
def test_every_name_and_alias_means_one_format(records):
    names = Counter(name.lower() for r in records.values() for name in {r.id.lower(), *(a.lower() for a in r.aliases)})

    assert {} == {name: count for name, count in names.items() if count > 1}


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("Q4_K_M", "gguf-q4-k-m"), ("q4_k_m", "gguf-q4-k-m"), ("fp8", "fp8-per-tensor"), ("awq", "awq-w4-g128"),
        ("gptq", "gptq-w4-g128-sym"), ("int4", "ct-w4a16-g128"), ("nf4", "bnb-nf4"), ("bfloat16", "bf16"),
    ],
)  # fmt: skip
def test_engines_spellings_lead_to_the_format(alias, name):
    assert alias in FORMATS[name].aliases


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("fp8", "kv-fp8-e4m3"), ("fp8_e4m3", "kv-fp8-e4m3"), ("fp8_e5m2", "kv-fp8-e5m2"), ("q8_0", "kv-q8_0"),
        ("f16", "kv-fp16"), ("bf16", "kv-bf16"), ("bfloat16", "kv-bf16"), ("float32", "kv-fp32"),
        ("int8", "kv-int8-per-token-head"), ("q4_0", "kv-q4_0"),
    ],
)  # fmt: skip
def test_cache_spellings_lead_to_the_format(alias, name):
    assert alias in KV_FORMATS[name].aliases


@pytest.mark.parametrize(
    ("name", "row"),
    [("kv-bf16", 256), ("kv-fp8-e4m3", 128), ("kv-int8-per-token-head", 132), ("kv-q8_0", 136), ("kv-nvfp4", 72)],
)
def test_a_heads_row_of_128_takes_its_blocks_and_scales(name, row):
    assert row == KV_FORMATS[name].row_bytes(128)


@pytest.mark.parametrize("records", [FORMATS, KV_FORMATS], ids=["weights", "caches"])
def test_every_format_names_its_source(records):
    assert all(record.source for record in records.values())
