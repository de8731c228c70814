"""Laws of AutoAWQ's fused attention."""

from tonnage.laws import fused_awq


def test_fused_attention_adds_an_eighth_to_the_cache_of_qwen3_8b():
    fused = fused_awq.fused_attention_cache(num_key_value_heads=8, head_dim=128, tokens=1, batch_size=1)

    assert 4 * 8 * 128 * 9 // 8 == fused


def test_a_fused_rotary_table_is_of_the_prompt_and_of_2048_tokens_at_least():
    """Qwen3-8B-AWQ: 36 tables are 18,432 bytes for every token of the prompt."""
    assert 18_432 * 30_720 == 36 * fused_awq.fused_rotary_table(head_dim=128, prompt_tokens=30_720)
    assert 18_432 * 2_048 == 36 * fused_awq.fused_rotary_table(head_dim=128, prompt_tokens=1)
