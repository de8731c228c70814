"""Trainable parameters of adapters, against counts that frameworks print."""

from tonnage.laws import adapters


def test_llama_2_7b_with_rank_8_on_queries_and_values_trains_4194304():
    per_module = adapters.lora(in_features=4096, out_features=4096, rank=8, copies=32)

    assert 4_194_304 == 2 * per_module


def test_dora_adds_one_magnitude_per_output():
    plain = adapters.lora(in_features=100, out_features=200, rank=4)

    assert plain + 200 == adapters.dora(in_features=100, out_features=200, rank=4)


def test_ia3_prompt_and_prefix_count_vectors():
    assert 3 * 1024 == adapters.ia3(scaled=1024, copies=3)
    assert 20 * 4096 == adapters.prompt(virtual_tokens=20, hidden_size=4096)
    assert 20 * 32 * 2 * 1024 == adapters.prefix(virtual_tokens=20, num_hidden_layers=32, key_value_width=1024)


def test_rank_zero_trains_nothing():
    assert 0 == adapters.lora(in_features=4096, out_features=4096, rank=0)


def test_a_prefix_of_no_tokens_still_joins_a_cache_of_the_sequence():
    kept = adapters.prefix_cache(
        virtual_tokens=0,
        sequences=1,
        length=100,
        num_hidden_layers=2,
        key_value_width=8,
        query_width=32,
        element_bytes=2,
    )

    assert kept == 2 * 100 * 2 * 8 * 2


def test_a_prefix_is_expanded_to_all_query_heads():
    kept = adapters.prefix_cache(
        virtual_tokens=10,
        sequences=4,
        length=0,
        num_hidden_layers=1,
        key_value_width=8,
        query_width=32,
        element_bytes=2,
    )

    assert kept == 4 * 10 * 2 * (8 + 32) * 2


def test_tensors_beside_a_frozen_model_are_rows_times_columns_in_their_width():
    pair = ((16, 4096, 32), (1024, 16, 32))
    saved = ((128_256, 4096, 1),)

    stored = adapters.tensors(shapes=pair, rest=saved, element_bytes=2)

    assert stored == 2 * (adapters.lora(in_features=4096, out_features=1024, rank=16, copies=32) + 128_256 * 4096)
    assert 0 == adapters.tensors(shapes=(), rest=(), element_bytes=2)


def test_a_merge_holds_the_product_and_what_a_packed_linear_becomes():
    assert 2 * 4 * 4096**2 == adapters.merged(elements=4096**2, adapter_bytes=4, quantized=False)
    assert (2 + 4 + 4 + 4 + 0.5) * 4096**2 == adapters.merged(elements=4096**2, adapter_bytes=4, quantized=True)


def test_a_merge_with_magnitudes_copies_the_weight_and_sums_in_the_width_of_the_adapter():
    assert (2 + 3 * 4 + 2) * 4096**2 == adapters.merged(
        elements=4096**2, adapter_bytes=4, quantized=False, magnitudes=True
    )
    assert (2 + 3 * 2) * 4096**2 == adapters.merged(elements=4096**2, adapter_bytes=2, quantized=False, magnitudes=True)
