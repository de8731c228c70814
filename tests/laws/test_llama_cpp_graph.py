import pytest

from tonnage.laws import llama_cpp_graph as graph
from tonnage.units import MiB


def test_output_stage_of_qwen_3b_is_the_300_75_mib_of_a_cuda_log():
    # SciSharp/LLamaSharp 1099
    size = graph.output_stage(rows=512, vocab_size=151_936, hidden_size=2_048)

    assert 300.75 == size / MiB


def test_layer_stage_of_llama_2_7b_is_96_mib_at_8192_cells():
    # recorded dry run of llama-fit-params: 96 MiB, 120 MiB at 32768 cells
    elements = graph.feed_forward(hidden_size=4_096, intermediate_size=11_008, attention_width=4_096)
    masks = graph.mask(cells=8_192, flash_attention=True, separate_f32=False)

    assert 96 == graph.layer_stage(tokens=512, input_bytes=masks + 36, elements=elements) // MiB
    more = graph.mask(cells=32_768, flash_attention=True, separate_f32=False)
    assert 120 == graph.layer_stage(tokens=512, input_bytes=more + 36, elements=elements) // MiB


def test_scores_of_every_head_dominate_without_flash_attention():
    # llama-3.2-1b at 32768 cells: 2130 MiB
    elements = graph.attention(hidden_size=2_048, attention_width=2_048, score_cells=32_768, num_attention_heads=32)
    inputs = graph.mask(cells=32_768, flash_attention=False, separate_f32=False) + 36
    inputs += graph.transposed_value_indices(num_key_value_heads=8, value_head_dim=64)

    assert 2_130 == graph.layer_stage(tokens=512, input_bytes=inputs, elements=elements) // MiB


def test_experts_count_by_token_and_add_outputs_only_where_these_are_wider():
    narrow = graph.experts(hidden_size=2_048, experts_per_token=8, expert_intermediate_size=768, attention_width=4_096)
    wide = graph.experts(hidden_size=4_096, experts_per_token=2, expert_intermediate_size=14_336, attention_width=4_096)

    assert 3 * 8 * 768 + 2 * 2_048 + 4_096 + 8 * 2_048 == narrow
    assert 3 * 2 * 14_336 + 2 * 4_096 + 4_096 == wide


def test_deepseek_v3_needs_386_mib_per_micro_batch_of_512():
    elements = graph.latent_attention(
        hidden_size=7_168, num_attention_heads=128, query_head_dim=192, latent_dim=576, score_cells=0
    )
    inputs = graph.mask(cells=8_192, flash_attention=True, separate_f32=False) + 36

    assert 386 == graph.layer_stage(tokens=512, input_bytes=inputs, elements=elements) // MiB


@pytest.mark.parametrize(
    ("flash", "separate", "expected"), [(True, False, 2), (True, True, 6), (False, False, 4), (False, True, 4)]
)
def test_mask_bytes_depend_on_kernel_and_era(flash, separate, expected):
    assert 10 * expected == graph.mask(cells=10, flash_attention=flash, separate_f32=separate)


def test_an_ungated_feed_forward_is_activated_in_place():
    assert 100 + 20 == graph.feed_forward(hidden_size=10, intermediate_size=100, attention_width=0, gated=False)


def test_narrow_experts_take_the_freed_attention_output():
    # GLM-4.5-Air, traced: 75776 elements per token
    width = graph.experts(
        hidden_size=4_096, experts_per_token=8, expert_intermediate_size=1_408, attention_width=96 * 128
    )

    assert 75_776 == width


def test_a_mamba_mixer_of_mamba2_27b_needs_36688_elements_per_token():
    width = graph.selective_scan(projected_width=10_576, conv_channels=5_376, inner_size=5_120)

    assert 36_688 == width
    assert 74 == graph.layer_stage(tokens=512, input_bytes=0, elements=width, state_bytes=2_748_416) // MiB


def test_gated_attention_holds_its_gate_beside_the_scores():
    plain = graph.attention(hidden_size=8, attention_width=4, score_cells=10, num_attention_heads=2)

    assert (
        4
        == graph.attention(hidden_size=8, attention_width=4, score_cells=10, num_attention_heads=2, gated=True) - plain
    )


def test_a_server_reserves_rows_for_slots_and_drafts_only():
    assert 4 == graph.output_rows(tokens=512, slots=4, draft_tokens=0, every_token=False)
    assert 12 == graph.output_rows(tokens=512, slots=4, draft_tokens=2, every_token=False)
    assert 512 == graph.output_rows(tokens=512, slots=4, draft_tokens=0, every_token=True)
    assert 2 == graph.output_rows(tokens=2, slots=4, draft_tokens=0, every_token=False)


def test_host_buffer_is_the_12_01_mib_of_a_cuda_log():
    # the same log: n_ctx 4096, n_embd 2048; an f32 mask and one copy of the embedded rows
    size = graph.host_buffer(tokens=512, hidden_size=2_048, mask_bytes=4 * 4_096, index_bytes=20, copies=1)

    assert 12.01 == round(size / MiB, 2)


def test_output_buffer_holds_a_row_per_slot():
    assert 4 * 4 * 1_000 == graph.output_buffer(slots=4, vocab_size=1_000)


@pytest.mark.parametrize(("first", "measured"), [(True, 172.04), (False, 204.04)])
def test_three_devices_keep_copies_of_what_arrives(first, measured):
    # llama-3.1-8b at 8192 cells: 116.01 MiB on one device
    inputs = graph.mask(cells=8_192, flash_attention=True, separate_f32=False) + 36
    growth = graph.pipeline_copies(tokens=512, input_bytes=inputs, hidden_size=4_096, first=first)

    assert growth / MiB == pytest.approx(measured - 116.01, abs=0.1)


def test_one_copy_of_the_inputs_is_in_the_buffer_already():
    assert 0 == graph.pipeline_copies(tokens=512, input_bytes=100, hidden_size=0, first=True, copies=1)
