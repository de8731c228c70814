import pytest

from tonnage.laws import vision_encoder
from tonnage.units import GiB


def test_gemma_3_is_profiled_with_32_images():
    assert 32 == vision_encoder.items(
        budget=8192, tokens_per_item=256, max_num_seqs=1024, limit=999, max_model_len=8192
    )


def test_an_item_larger_than_the_budget_is_profiled_once():
    assert 1 == vision_encoder.items(
        budget=2048, tokens_per_item=16_384, max_num_seqs=256, limit=999, max_model_len=8192
    )


def test_limits_per_prompt_and_running_requests_cap_the_items():
    assert 4 == vision_encoder.items(budget=8192, tokens_per_item=256, max_num_seqs=4, limit=1, max_model_len=8192)


def test_features_are_as_wide_as_the_language_model():
    assert 8192 * 3840 * 2 == vision_encoder.features(tokens=8192, output_size=3840, element_bytes=2)


def test_pixels_of_an_image_are_its_patches():
    assert 3 * 896 * 896 * 2 == vision_encoder.pixels(
        patches=4096, patch_size=14, temporal_patch_size=1, element_bytes=2
    )


def test_a_largest_qwen_2_5_video_peaks_in_attention():
    # vLLM 0.23, Qwen2.5-VL-7B on A100: 14.25 GiB beside pixels for seven frame pairs
    mlp = vision_encoder.tower_mlp(patches=458_752, hidden_size=1280, width=3420, gated=True, element_bytes=2)
    attention = vision_encoder.tower_attention(
        patches=458_752, hidden_size=1280, tensor_parallel_size=1, rotary=True, element_bytes=2
    )

    assert mlp < attention
    assert 14.25 == pytest.approx(attention / GiB, rel=0.02)


def test_ranks_share_the_heads_but_not_the_stream():
    one, two = (
        vision_encoder.tower_attention(
            patches=100, hidden_size=64, tensor_parallel_size=n, rotary=False, element_bytes=2
        )
        for n in (1, 2)
    )

    assert 100 * 2 * (64 + 4 * 64) == one
    assert 100 * 2 * (64 + 2 * 64) == two


def test_sides_of_an_image_are_rounded_to_whole_merged_patches():
    known = {"patch_size": 14, "spatial_merge_size": 2}

    assert 64 * 64 == vision_encoder.patches(height=896, width=896, **known)
    assert 36 * 48 == vision_encoder.patches(height=500, width=680, **known)
    assert 4 == vision_encoder.patches(height=1, width=1, **known)


@pytest.mark.parametrize(
    ("max_model_len", "tokens"), [(8192, 12_100), (16_199, 12_100), (16_200, 12_288), (262_144, 12_288)]
)
def test_a_qwen_3_video_has_two_frames_or_as_many_as_there_may_be(max_model_len, tokens):
    known = {"max_pixels": 25_165_824, "factor": 32, "temporal_patch_size": 2, "max_frames": 24_576}

    assert tokens == vision_encoder.largest_video(max_model_len=max_model_len, **known)


def test_an_output_shorter_than_the_budget_is_copied_into_one_as_long():
    known = {"items": 3, "budget": 8192, "output_size": 5120, "element_bytes": 2}

    assert 3 * 8192 * 5120 * 2 == vision_encoder.filled_features(tokens_per_item=8191, **known)
    assert 0 == vision_encoder.filled_features(tokens_per_item=8192, **known)
