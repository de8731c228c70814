"""What vLLM's releases print and keep of the same settings."""

from cards import LLAMA_8B, answer


def awq_bytes(version, gpu):
    found = answer(LLAMA_8B, "awq-w4-g128", {"gpu": gpu}, engine="vllm", engine_version=version)
    return next(i.bytes.expected for i in found.gpus[0].items if i.component == "weights")


def test_machete_keeps_the_zeros_of_awq_multiplied_with_their_scales():
    """On Hopper since 0.20: two bytes for each group instead of four bits."""
    linears = 32 * (4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    before, after = awq_bytes("0.19.0", "h100-sxm"), awq_bytes("0.20.0", "h100-sxm")

    assert before == awq_bytes("0.20.0", "a100-80-sxm")
    assert linears // 128 * 3 // 2 == after - before


def test_concurrency_is_tokens_by_length_before_0_9_1():
    old, new = (
        answer(LLAMA_8B, "bf16", {"gpu": "h100-sxm"}, engine="vllm", engine_version=v, max_model_len=24).kv_cache
        for v in ("0.9.0", "0.9.2")
    )

    assert round(old.blocks * 16 / 24, 2) == old.max_concurrency
    assert round(new.blocks / 2, 2) == new.max_concurrency
