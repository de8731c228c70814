from tonnage.laws import mlx


def test_caches_grow_by_256_tokens():
    assert 256 == mlx.cache_tokens(tokens=1)
    assert 256 == mlx.cache_tokens(tokens=256)
    assert 512 == mlx.cache_tokens(tokens=257)


def test_rotating_caches_hold_window_and_step_during_the_prefill():
    assert 1_024 + 2_048 - 1 == mlx.rotating_cache_tokens(tokens=100_000, window=1_024, prefill_step=2_048)
    assert 256 == mlx.rotating_cache_tokens(tokens=100, window=1_024, prefill_step=2_048)


def test_a_prefill_step_is_linear_in_tokens():
    assert 2_048 * 2 * (3 * 8 + 4 * 4) == mlx.prefill_step(
        tokens=2_048, hidden_size=4, intermediate_size=8, element_bytes=2
    )


def test_growth_copies_one_layer():
    assert 17 == mlx.growth_copy(layer_bytes=17)


def test_scores_without_a_fused_kernel_are_those_of_every_pair():
    pairs = {"tokens": 2_048, "context_tokens": 131_072, "element_bytes": 2}

    assert 12 * 2**30 == mlx.unfused_scores(**pairs, heads=24)
    assert 2 * mlx.unfused_scores(**pairs, heads=24) == mlx.unfused_scores(**pairs, heads=24, latent=True)
