"""The usual proportions of a decoder of which only the parameter count is known."""

HEAD = 128
"""Head size of models of this decade. [elements]"""
WIDTH_PER_LAYER = 128
"""Hidden size over layers: 4096 over 32, 8192 over 80, 2048 over 16 to 24. [elements]"""
VOCABULARY = 100_000
"""Between Llama 2's and Qwen's. [tokens]"""
LARGEST_VOCABULARY = 152_064
"""Qwen's, twice: as embedding and as head; Gemma's 262,144 are one matrix. [tokens]"""


def usual_width(parameters: int) -> int:
    """Hidden size of a decoder of 12 x width x width per layer. [elements]"""
    width: float = (parameters * WIDTH_PER_LAYER / 12) ** (1 / 3)
    return max(32, round(width / 64) * 64)
