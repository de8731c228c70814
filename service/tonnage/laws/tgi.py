"""How Text Generation Inference sizes its cache and its largest prefill."""

from tonnage.units import MiB

WARM_UP_ROWS = 4096
"""Requests a warm-up batch may consist of. [requests]"""


def pool(*, free: int, total: int, kept: float, warm_up_cache: int) -> int:
    """
    Cache after the warm-up: what is free above the part that is kept, and what the warm-up already holds.

    Args:
        free: Free memory after the warm-up, its allocations not returned. [bytes]
        total: Memory of the card. [bytes]
        kept: 1 - CUDA_MEMORY_FRACTION x TGI_WIGGLE_ROOM. [fraction]
        warm_up_cache: Cache of the warm-up batch, reused. [bytes]

    Returns:
        Pool, at least the warm-up's cache. [bytes]

    Source:
        huggingface/text-generation-inference@db931fcf server/text_generation_server/models/flash_causal_lm.py warmup
    """
    return max(0, free - int(kept * total)) + warm_up_cache


def prefill_tokens(*, free: int, token_bytes: int, intermediate_size: int, experts: int, element_bytes: int) -> int:
    """
    Default max_batch_prefill_tokens as far as memory limits it: cache and feed-forward of every token.

    Args:
        free: 95 % of the card less the weights. [bytes]
        token_bytes: Cache of one token. [bytes/token]
        intermediate_size: Feed-forward width. [elements]
        experts: Experts used per token, 1 for a dense layer. [unitless]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Tokens that fit, at least 1. [tokens]

    Source:
        huggingface/text-generation-inference@db931fcf launcher/src/main.rs compute_optimal (9 x intermediate x experts)
    """
    per_token = token_bytes + 9 * intermediate_size * experts * element_bytes
    return max(1, free // per_token)


def prefill_activations(*, tokens: int, hidden_size: int, intermediate_size: int, element_bytes: int) -> int:
    """
    Activations of the warm-up's prefill: gate and up in one product, the activated row, four rows of the stream.

    Args:
        tokens: max_batch_prefill_tokens. [tokens]
        hidden_size: Width of the stream. [elements]
        intermediate_size: Feed-forward width on the rank, of all experts a token uses. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/text-generation-inference@db931fcf custom_modeling/flash_llama_modeling.py LlamaMLP; not measured
    """
    return tokens * element_bytes * (3 * intermediate_size + 4 * hidden_size)


def warm_up_logits(*, tokens: int, vocab_size: int, element_bytes: int) -> int:
    """
    Logits of the warm-up prefill: those of the last position of every request in it.

    Args:
        tokens: Tokens of the batch. [tokens]
        vocab_size: Vocabulary. [elements]
        element_bytes: Width of logits. [bytes]

    Returns:
        Size if as many requests as the batch may hold were of one token each. [bytes]

    Source:
        huggingface/text-generation-inference@db931fcf server/text_generation_server/models/flash_causal_lm.py warmup
    """
    return vocab_size * element_bytes * min(tokens, WARM_UP_ROWS)


def scored_prompts(*, tokens: int, vocab_size: int, element_bytes: int) -> int:
    """
    Logits of a warm-up that asks for the log-probabilities of every prompt token, and what the allocator keeps of them.

    Args:
        tokens: Tokens of the batch. [tokens]
        vocab_size: Vocabulary. [elements]
        element_bytes: Width of logits. [bytes]

    Returns:
        Four rows for every token. [bytes]

    Source:
        huggingface/text-generation-inference@v2.2.0 router/client/src/v3/client.rs warmup (prefill_logprobs), flash_causal_lm.py
        (log_softmax of all rows); measured: 3.8 and 3.9 rows in logs of 2.2 on an A10G and of 2.0 on cards of 64 GB
    """
    return 4 * tokens * vocab_size * element_bytes


def captured() -> int:
    """
    Graphs of decode batches, captured after the pool in the tenth left free.

    Returns:
        Typical size; no log states one. [bytes]

    Source:
        assumed; huggingface/text-generation-inference@db931fcf server/text_generation_server/models/flash_causal_lm.py
        cuda_graph_warmup
    """
    return 400 * MiB
