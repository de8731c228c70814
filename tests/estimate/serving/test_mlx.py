from cards import LLAMA_8B, answer, size

MLX = {"engine": "mlx"}
MAC = {"gpu": "apple-m4-pro-64"}


def test_four_bit_llama_8b_serves_on_a_mac():
    report = answer(LLAMA_8B, "mlx-4bit-g64", MAC, **MLX, max_model_len=8_192)

    assert "met" == report.verdict
    assert 131_072 * 8_192 == size(report, "kv_cache")
    assert report.claimed_bytes is None


def test_caches_have_room_for_whole_steps():
    report = answer(LLAMA_8B, "mlx-4bit-g64", **MLX, max_model_len=100)

    assert 131_072 * 256 == size(report, "kv_cache")


def test_weights_near_the_working_set_need_confirmation():
    report = answer({**LLAMA_8B, "num_hidden_layers": 105}, "bf16", MAC, **MLX, max_model_len=256)

    assert "met" != report.verdict


def test_other_vendors_are_excluded():
    report = answer(LLAMA_8B, "bf16", {"gpu": "mi300x"}, **MLX, max_model_len=256)

    assert "excluded" == report.verdict


def test_heads_without_a_fused_kernel_write_out_their_scores():
    asked = {"input_tokens": 8_192, "output_tokens": 0, "batch_size": 1}
    fused, wide = (
        size(answer({**LLAMA_8B, "head_dim": width}, "mlx-4bit-g64", **MLX, **asked), "activations", "prefill")
        for width in (128, 256)
    )

    assert 2_048 * 8_192 * 32 * 2 == wide - fused
