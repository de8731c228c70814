"""What vLLM refuses whatever the memory: classes a version lacks, bfloat16 on old cards, lengths beyond the model's."""

from functools import cache

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate.serving import account
from tonnage.spec.card import SizingCard

QWEN3 = {
    "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8,
    "vocab_size": 32128, "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True,
}  # fmt: skip


@cache
def catalog():
    return load_catalog()


def found(config, version="0.19.0", gpu="a100-80-sxm", **serving):
    request = {
        "model": {"config": config},
        "serving": {"engine": "vllm", "engine_version": version, **serving},
        "placement": {"gpu": gpu},
    }
    return {f.field: f for f in account(resolve(catalog(), msgspec.convert(request, SizingCard))).findings}


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("0.6.6", "excluded"),
        ("0.8.3", "needs_confirmation"),
        ("0.8.4", None),
        ("0.8", None),
        ("0.7", "needs_confirmation"),
    ],
)
def test_a_model_newer_than_the_version_has_no_class_of_its_own(version, status):
    finding = found(QWEN3, version).get("/serving/engine_version")

    assert status == (finding.status if finding is not None else None)


@pytest.mark.parametrize(("version", "refused"), [("0.9.2", False), ("0.10", True), ("0.19.0", True)])
def test_a_class_that_was_removed_is_refused(version, refused):
    finding = found(QWEN3 | {"model_type": "phi3small"}, version).get("/model")

    assert refused == (finding is not None and "until vLLM 0.9.2" in finding.reason)


def test_t5_is_refused_by_every_version():
    assert "excluded" == found(T5, "0.33.0")["/model"].status


@pytest.mark.parametrize(
    ("version", "gpu", "refused"), [("0.8.5", "t4", True), ("0.9.0", "t4", False), ("0.8.5", "a100-80-sxm", False)]
)
def test_a_bfloat16_checkpoint_needs_a_card_that_has_it_or_a_release_that_replaces_it(version, gpu, refused):
    finding = found(QWEN3, version, gpu).get("/serving/dtype")

    assert refused == (finding is not None and finding.status == "excluded")
    assert not refused or "--dtype half" in finding.reason


@pytest.mark.parametrize(("length", "uncertain"), [(40960, False), (131_072, True)])
def test_a_length_beyond_the_models_own_needs_confirmation(length, uncertain):
    finding = found(QWEN3, max_model_len=length).get("/serving/max_model_len")

    assert uncertain == (finding is not None and "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in finding.reason)
