"""Keys and values that a model keeps where it is not told to train."""

from tonnage.estimate.training.per_model import per_model
from tonnage.laws import kv_cache
from tonnage.spec.model import Model


@per_model()
def cache_per_token(model: Model) -> int:
    """Keys and values of one token as DynamicCache holds them, latent ones expanded. [bytes/token]"""
    return sum(
        group.count
        * kv_cache.full_attention(
            num_key_value_heads=attention.num_key_value_heads,
            key_bytes=2 * attention.head_dim,
            value_bytes=2 * attention.v_head_dim,
        )
        for group in model.layers
        if (attention := group.layer.attention) is not None
    )
