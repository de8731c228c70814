"""Shards, buckets and pipeline schedules, by the code's figures."""

from tonnage.laws import training_sharding as laws


def test_shards_add_up_to_at_least_the_whole():
    assert 8 * laws.shard(amount=1001, ranks=8) >= 1001


def test_zero_2_of_2_85_billion_on_8_gpus_is_the_codes_11_gib_not_the_documentations_15():
    parameters = 2_851_000_000
    steady = 2 * parameters + 16 * parameters // 8 + 2 * parameters // 8

    assert round(steady / 2**30, 1) == 11.3


def test_steps_copy_6_bytes_per_parameter_of_the_rank():
    assert 6 * 100 == laws.zero1_step(trainable=800, ranks=8)
    assert 8 * 100 == laws.zero2_step(trainable=800, ranks=8)
    assert 6 * 100 == laws.zero3_step(trainable=800, ranks=8)
    assert 6 * laws.ZERO_SUB_GROUP == laws.zero3_step(trainable=10**13, ranks=8)


def test_overlapping_reduction_needs_two_buckets_of_1_gb():
    assert 2_000_000_000 == laws.zero_buckets()
    assert 1_000_000_000 == laws.zero_buckets(overlap=False)
    assert 2 * 2 * 1000 == laws.zero_buckets(bucket=1000)


def test_hooks_of_frozen_layers_keep_60_hidden_states_more_of_32_layers():
    kept = laws.hooked_inputs(hidden_size=4096, element_bytes=2)

    assert 245_760 == (32 - 2) * kept


def test_zero_3_buffers_follow_the_hidden_size_under_auto():
    assert 2 * 4096 * 4096 == laws.zero3_reduce_bucket(hidden_size=4096, automatic=True)
    assert 2 * 500_000_000 == laws.zero3_reduce_bucket(hidden_size=4096, automatic=False)
    assert 2 * 50_000_000 == laws.zero3_prefetch(hidden_size=4096, automatic=False)


def test_a_unit_is_whole_while_used_and_reduced_in_two_widths():
    assert 200 == laws.gathered_unit(parameters=100, element_bytes=2)
    assert 600 == laws.reduced_unit(parameters=100, gradient_bytes=2, reduce_bytes=4)


def test_summoning_holds_the_model_and_its_shard():
    assert 2 * 1000 + 500 == laws.summoned(parameters=1000, element_bytes=2, ranks=4)


def test_tables_that_pass_through_fp32_take_two_bytes_each_and_the_last_one_twice():
    assert 4 * 1000 == laws.upcast_tables(elements=1000, tables=1)
    assert 6 * 1000 == laws.upcast_tables(elements=1000, tables=2)
    assert 0 == laws.upcast_tables(elements=1000, tables=0)


def test_megatron_keeps_12_bytes_over_the_ranks():
    assert 1200 == laws.distributed_optimizer_states(parameters=800, ranks=8)


def test_the_first_stage_holds_as_many_micro_batches_as_stages():
    assert [4, 3, 2, 1] == [laws.in_flight(stage=r, stages=4, micro_batches=8) for r in range(4)]
    assert 2 == laws.in_flight(stage=0, stages=4, micro_batches=2)


def test_interleaving_of_4_stages_and_5_chunks_holds_23_first_and_17_last():
    assert [23, 17] == [laws.interleaved_in_flight(stage=r, stages=4, chunks=5, micro_batches=32) for r in (0, 3)]


def test_flat_units_keep_44_percent_of_a_shard_in_16_bit():
    assert 440 == laws.flat_unit_copies(shard_bytes=1000)


def test_gradients_whose_reduction_is_put_off_are_whole():
    assert 2000 == laws.deferred_gradients(parameters=1000, element_bytes=2)
