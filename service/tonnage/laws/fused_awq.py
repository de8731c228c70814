"""What AutoAWQ's fused attention allocates beside the cache of generate()."""

_FUSED_LENGTH = 2_048
"""max_seq_len where AutoAWQ is not told another. [tokens]"""


def fused_attention_cache(*, num_key_value_heads: int, head_dim: int, tokens: int, batch_size: int) -> int:
    """
    Key and value windows and the complex rotary table that AutoAWQ's fused attention allocates for the longest sequence.

    Args:
        num_key_value_heads: KV heads. [heads]
        head_dim: Width of a head. [elements]
        tokens: Longest sequence. [tokens]
        batch_size: Sequences. [sequences]

    Returns:
        One layer. [bytes]

    Source:
        casper-hansen/AutoAWQ@0.2.9 awq/modules/fused/attn.py, cache.py; measured: Qwen3-8B-AWQ table
    """
    return tokens * (4 * batch_size * num_key_value_heads * head_dim + 4 * head_dim)


def fused_rotary_table(*, head_dim: int, prompt_tokens: int) -> int:
    """
    Complex rotary table of one layer of AutoAWQ's fused attention.

    Args:
        head_dim: Width of a head. [elements]
        prompt_tokens: Tokens of the prompt. [tokens]

    Returns:
        Half a head of complex numbers for every token of the prompt, and for no fewer than max_seq_len's 2048. [bytes]

    Source:
        casper-hansen/AutoAWQ@0.2.9 awq/modules/fused/attn.py RoPE.precompute_freqs_cis, models/base.py (2048 by default);
        measured: Qwen3-8B-AWQ, prompts of 1, 6144, 14336 and 30720 tokens: within 1.3 MB
    """
    return 8 * (head_dim // 2) * max(prompt_tokens, _FUSED_LENGTH)
