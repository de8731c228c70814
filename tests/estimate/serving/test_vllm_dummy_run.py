"""Parts of vLLM's profile run: which settings and shapes bring which of them."""

from types import SimpleNamespace

import pytest

from tonnage.estimate.serving import vllm_images
from tonnage.estimate.serving import vllm_profile as profile
from tonnage.estimate.serving.profiled_items import Item
from tonnage.laws import sampler, serving_activations, vision_encoder

TOKENS, WIDTH, HIDDEN = 100, 2, 32
STREAM = TOKENS * HIDDEN * WIDTH


def chosen(**more):
    release = {
        "benchmarks_lookup": False, "reduces_out_of_place": True, "sampler": "sort", "v2_samples_with_parameters": False,
        "v2_profiles_encoder": True, "encoder_outputs_fill_budget": False, "qwen3_video_token_places": 1.0,
    } | more.pop("release", {})  # fmt: skip
    usual = {
        "max_num_batched_tokens": TOKENS, "element_bytes": WIDTH, "legacy": False, "eager": False, "l2_cache_bytes": 1000,
        "keeps_gate_up": False, "max_model_len": 64, "max_num_seqs": 4, "block_size": 16, "runner_v2": False, "rows": 8,
        "multiprocessors": 10, "speculative_tokens": 0, "images": True, "videos": False, "images_per_prompt": 1,
        "encoder_replicated": False, "major": 9, "data_centre": False, "sampler_optional": False,
        "awq_matmul": None,
    }  # fmt: skip
    return SimpleNamespace(release=SimpleNamespace(**release), **usual | more)


def shape(**more):
    usual = {"hidden_size": HIDDEN, "mlp_width": 0, "gated": True, "attention_width": 1, "experts": None, "mla": None}
    return SimpleNamespace(**usual | {"mla_heads": 2} | more)


LATENT = SimpleNamespace(qk_nope_head_dim=8, v_head_dim=4, index_head_dim=None)


def rank(*, last=True, ranks=1, first=True):
    return SimpleNamespace(last=last, first=first, tensor_parallel_size=ranks)


def forward(found, settings=None, at=None, *, experts=0, family="plain"):
    return profile._forward(found, settings or chosen(), at or rank(), experts=experts, kept=7, family=family)


# ---- forward ----


def test_attention_is_three_streams_and_its_own_width():
    found = forward(shape(attention_width=500))

    assert ("forward", 3 * STREAM + TOKENS * 500 * WIDTH, 7) == (found.name, found.activations, found.vision)


def test_a_mixture_is_four_streams_its_experts_and_a_flush_of_the_cache():
    assert 4 * STREAM + 5000 + 1000 == forward(shape(experts=object()), experts=5000).activations
    assert 4 * STREAM + 5000 == forward(shape(experts=object()), chosen(eager=True), experts=5000).activations
    assert 4 * STREAM + 5000 == forward(shape(experts=object()), chosen(legacy=True), experts=5000).activations
    assert 3 * STREAM + TOKENS * WIDTH == forward(shape(), experts=50_000).activations


def test_awq_weights_are_written_out_or_multiplied_in_parts():
    dense = forward(shape(mlp_width=400)).activations
    written = forward(shape(mlp_width=400), chosen(awq_matmul="dequantize")).activations
    parts = forward(shape(mlp_width=400), chosen(awq_matmul="split")).activations

    assert 2 * 400 * HIDDEN * WIDTH == written - dense
    assert 3 * STREAM + 9 * TOKENS * 2 * 400 * WIDTH == parts
    assert dense == forward(shape(mlp_width=400), chosen(awq_matmul="marlin")).activations


def test_the_experts_of_that_time_were_whole_on_their_rank():
    found = shape(experts=SimpleNamespace(width=200))

    assert (
        3 * STREAM + 9 * TOKENS * 2 * 400 * WIDTH
        == forward(found, chosen(awq_matmul="split"), rank(ranks=2)).activations
    )


def test_a_latent_is_projected_for_the_whole_context():
    context = serving_activations.mla_context_tokens(max_model_len=64, max_num_seqs=4, block_size=16)
    projected = serving_activations.mla_context_projection(
        context_tokens=context, heads=2, qk_nope_head_dim=8, v_head_dim=4, element_bytes=WIDTH
    )

    assert 3 * STREAM + projected == forward(shape(mla=LATENT, attention_width=0)).activations
    assert 3 * STREAM == forward(shape(mla=LATENT, attention_width=0), chosen(legacy=True)).activations


def test_stages_hand_their_stream_over():
    handed = serving_activations.pipeline_handover(tokens=TOKENS, hidden_size=HIDDEN, element_bytes=WIDTH)

    assert handed == forward(shape(), at=rank(last=False)).activations - forward(shape()).activations


def eager(width=5000, *, keeps=False, copy=False):
    return serving_activations.mlp_eager(
        tokens=TOKENS, hidden_size=HIDDEN, width=width, gated=True, element_bytes=WIDTH, keeps_gate_up=keeps,
        reduced_copy=copy,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "release", "copy"),
    [(1, {}, False), (2, {}, True), (2, {"reduces_out_of_place": False}, False)],
)
def test_an_eager_layer_copies_what_it_reduces(ranks, release, copy):
    found = forward(shape(mlp_width=5000), chosen(eager=True, release=release), rank(ranks=ranks))

    assert eager(copy=copy) == found.activations


def test_a_compiled_layer_has_a_form_of_its_own():
    expected = serving_activations.mlp_compiled(
        tokens=TOKENS, hidden_size=HIDDEN, width=5000, gated=True, element_bytes=WIDTH, l2_cache_bytes=1000
    )

    assert expected == forward(shape(mlp_width=5000)).activations
    assert (True, False, False) == tuple(
        profile.compiles(chosen(**more)) for more in ({}, {"eager": True}, {"legacy": True})
    )


def test_some_formats_need_a_matrix_or_an_input_more():
    found = {
        f: forward(shape(mlp_width=5000), chosen(eager=True), family=f).activations for f in ("bitsandbytes", "int8")
    }

    matrix = serving_activations.dequantized_matrix(rows=5000, columns=HIDDEN, element_bytes=WIDTH)
    assert eager() + matrix == found["bitsandbytes"]
    assert eager() + serving_activations.quantized_input(tokens=TOKENS, width=5000) == found["int8"]
    assert 3 * STREAM + TOKENS * WIDTH == forward(shape(), family="bitsandbytes").activations


def test_an_indexer_gathers_keys_and_scales():
    latent = SimpleNamespace(index_head_dim=129)
    expected = serving_activations.indexer_gather(max_model_len=64, row_bytes=129 + 2 * 4)

    assert expected == profile._indexer_gather(shape(mla=latent), chosen())
    assert 0 == profile._indexer_gather(shape(mla=LATENT), chosen())
    assert 0 == profile._indexer_gather(shape(), chosen())


# ---- the first start ----


def cold(warm=1000, *, at=None, vision=None, **more):
    settings = chosen(release={"benchmarks_lookup": more.pop("benchmarks", True)}, **more)
    model = SimpleNamespace(vision=vision, vocab_size=500, hidden_size=HIDDEN)
    return profile._cold_start(model, settings, at or rank(), SimpleNamespace(total=warm))


def test_a_cold_start_benchmarks_the_lookup_with_a_table_of_its_own():
    (found,) = cold()
    (half,) = cold(at=rank(ranks=2))

    assert ("compile", (500 + TOKENS) * HIDDEN * WIDTH + 1000, 0) == (found.name, found.activations, found.vision)
    assert 250 * HIDDEN * WIDTH == found.activations - half.activations


@pytest.mark.parametrize(
    "more",
    [
        {"vision": object()}, {"at": rank(first=False)}, {"eager": True}, {"legacy": True}, {"benchmarks": False},
        {"warm": 60_000},
    ],
)  # fmt: skip
def test_a_cold_start_is_no_matter_elsewhere(more):
    assert [] == cold(**more)


# ---- the sampler ----

MODEL = SimpleNamespace(vocab_size=1000, vision=None, hidden_size=HIDDEN)


def buffers(**more):
    return profile._sampler_buffers(MODEL, chosen(**more), 8)


def test_each_sampler_has_its_own_buffers():
    sort = sampler.torch_sort(rows=8, vocab_size=1000)

    assert sort == buffers()
    assert sort == buffers(legacy=True, release={"sampler": "triton"})
    assert sampler.triton_top_k_top_p(rows=8, vocab_size=1000, multiprocessors=10) == buffers(
        release={"sampler": "triton"}
    )
    assert sampler.flashinfer_top_k_top_p(rows=8, vocab_size=1000) == buffers(release={"sampler": "flashinfer"})


def test_the_second_runner_profiles_another_sampler():
    second = {"runner_v2": True}

    assert sampler.gumbel(rows=8, vocab_size=1000) == buffers(**second)
    assert buffers() == buffers(**second, release={"v2_samples_with_parameters": True})
    assert buffers() == profile._sampler_buffers(MODEL, chosen(**second), 8, profiled=False)


def test_rejected_tokens_may_need_more():
    more = {"speculative_tokens": 9, "release": {"sampler": "flashinfer"}}
    expected = sampler.rejection(
        rows=8, vocab_size=1000, element_bytes=WIDTH, num_speculative_tokens=9
    ) - sampler.logits(rows=8, vocab_size=1000, element_bytes=WIDTH)

    assert expected == buffers(**more)
    assert sampler.torch_sort(rows=8, vocab_size=1000) == buffers(legacy=True, **more)


def test_the_samplers_run_holds_the_stream_and_the_rows_it_gathers():
    found = profile._sampler(MODEL, shape(), chosen(images=False), 7)
    rows = sampler.hidden_rows(rows=8, hidden_size=HIDDEN, element_bytes=WIDTH)

    assert (STREAM + rows, sampler.logits(rows=8, vocab_size=1000, element_bytes=WIDTH), 7) == (
        found.activations,
        found.logits,
        found.vision,
    )


def test_without_the_sort_the_next_branch_or_the_smaller_kernel_leads():
    drawn = SimpleNamespace(total=10_000, sampler=8000)
    kernel = sampler.flashinfer_top_k_top_p(rows=8, vocab_size=1000)
    settings = chosen(images=False)

    first = max(5000, 2000 + kernel)
    assert pytest.approx(1 - (first + 100) / 10_100 + 0.05) == profile._without_sort(MODEL, settings, drawn, 5000, 100)
    second = max(1, 2000 + kernel)
    assert pytest.approx(1 - (second + 100) / 10_100 + 0.05) == profile._without_sort(MODEL, settings, drawn, 1, 100)


@pytest.mark.parametrize(
    ("name", "optional", "words"),
    [
        ("sampler", True, "8 requests leads, which sorts"),
        ("sampler", False, "8 requests leads"),
        ("compile", False, "compiles inside"),
        ("encoder", False, "vision encoder's"),
        ("forward", False, "forward pass of 100 tokens"),
    ],
)
def test_what_leads_is_said(name, optional, words):
    found = profile._detail(SimpleNamespace(name=name), chosen(sampler_optional=optional))

    assert words in found
    assert ("sorts" in found) is optional


# ---- images ----

VISION = SimpleNamespace(
    hidden_size=16, intermediate_size=40, gated=True, patch_size=14, temporal_patch_size=2, deepstack_levels=3
)
SEEING = SimpleNamespace(vocab_size=1000, vision=VISION, hidden_size=HIDDEN)


def seen(monkeypatch, item, at=None, model=SEEING, **more):
    monkeypatch.setattr(vllm_images, "largest_item", lambda *_: item)
    monkeypatch.setattr(
        vllm_images, "_profiled", lambda *_, **sizes: vllm_images.Images(kept=sizes["patches"], peak=sizes["tokens"])
    )
    at = at or rank()
    return vllm_images.profiled_images(
        model, chosen(**more), first=at.first, tensor_parallel_size=at.tensor_parallel_size
    )


def item(tokens=20, patches=80):
    return Item(tokens, patches)


@pytest.mark.parametrize(
    ("model", "at", "more"),
    [
        (MODEL, None, {}),
        (SEEING, None, {"images": False}),
        (SEEING, rank(first=False), {}),
        (SEEING, None, {"runner_v2": True, "release": {"v2_profiles_encoder": False}}),
    ],
)
def test_without_images_there_is_nothing_of_them(monkeypatch, model, at, more):
    assert vllm_images.NO_IMAGES == seen(monkeypatch, item(), at, model, **more)


def test_an_image_of_unknown_size_is_unknown(monkeypatch):
    assert vllm_images.UNKNOWN_IMAGES == seen(monkeypatch, None)


def test_as_many_images_are_profiled_as_the_budget_takes(monkeypatch):
    count = vision_encoder.items(budget=TOKENS, tokens_per_item=20, max_num_seqs=4, limit=1, max_model_len=64)

    assert vllm_images.Images(kept=count * 80, peak=count * 20) == seen(monkeypatch, item())
    assert vllm_images.Images(kept=count * 80, peak=count * 20) == seen(monkeypatch, item(), runner_v2=True)


def test_outputs_of_the_tower_are_copied_into_tensors_of_the_whole_budget(monkeypatch):
    filling = {"release": {"encoder_outputs_fill_budget": True}}
    count = vision_encoder.items(budget=TOKENS, tokens_per_item=20, max_num_seqs=4, limit=1, max_model_len=64)
    row = HIDDEN * 4 * WIDTH

    assert count * 80 + count * TOKENS * row == seen(monkeypatch, item(), **filling).kept
    assert 80 == seen(monkeypatch, item(TOKENS), **filling).kept
    assert 80 + 5 * TOKENS * row == seen(monkeypatch, Item(20, 80, places=5 * TOKENS), **filling).kept


@pytest.mark.parametrize(("tokens", "long"), [(64, False), (65, True)])
def test_an_image_longer_than_a_request_is_marked_and_left_out_by_the_old_engine(monkeypatch, tokens, long):
    assert long is seen(monkeypatch, item(tokens)).long
    old = seen(monkeypatch, item(tokens), legacy=True)
    assert (long, 0 if long else 80) == (old.long, old.kept)


@pytest.mark.parametrize(
    ("more", "tokens", "expected"),
    [
        ({}, 20, 8),
        ({"legacy": True, "images": False}, 20, 8),
        ({"legacy": True}, None, 8),
        ({"legacy": True}, 50, 2),
        ({"legacy": True}, 20, 4),
        ({"legacy": True}, 101, 1),
    ],
)
def test_the_old_engine_runs_as_many_requests_as_hold_an_image(monkeypatch, more, tokens, expected):
    monkeypatch.setattr(vllm_images, "largest_item", lambda *_: None if tokens is None else item(tokens))

    assert expected == vllm_images.profiled_requests(SEEING, chosen(**more))


def profiled(at=None, vision=VISION, **more):
    return vllm_images._profiled(
        SEEING, vision, chosen(**more), (at or rank()).tensor_parallel_size, patches=80, tokens=20
    )


FEATURES = vision_encoder.features(tokens=20, output_size=HIDDEN * 4, element_bytes=WIDTH)
PIXELS = vision_encoder.pixels(patches=80, patch_size=14, temporal_patch_size=2, element_bytes=WIDTH)


def widest(width, ranks, *, rotary=True):
    return max(
        vision_encoder.tower_mlp(patches=80, hidden_size=16, width=width, gated=True, element_bytes=WIDTH),
        vision_encoder.tower_attention(
            patches=80, hidden_size=16, tensor_parallel_size=ranks, rotary=rotary, element_bytes=WIDTH
        ),
    )


def test_a_tower_holds_pixels_beside_its_widest_moment_and_leaves_features():
    found = profiled()

    assert (FEATURES + PIXELS, PIXELS + widest(40, 1)) == (found.kept, found.peak)
    assert FEATURES == profiled(runner_v2=True).kept


def test_a_tower_is_cut_unless_it_is_replicated():
    assert PIXELS + widest(14, 3) == profiled(rank(ranks=3)).peak
    assert PIXELS + widest(40, 1) == profiled(rank(ranks=3), encoder_replicated=True).peak


def test_a_tower_of_still_images_does_not_rotate():
    still = SimpleNamespace(**vars(VISION) | {"temporal_patch_size": 1, "intermediate_size": 1})
    pixels = vision_encoder.pixels(patches=80, patch_size=14, temporal_patch_size=1, element_bytes=WIDTH)

    assert pixels + widest(1, 1, rotary=False) == profiled(vision=still).peak


# ---- the band ----

KEPT = vllm_images.Images(kept=1)


@pytest.mark.parametrize(
    ("name", "shaped", "more", "thin", "images", "expected"),
    [
        ("forward", {}, {}, False, vllm_images.UNKNOWN_IMAGES, (0.15, 5.0)),
        ("forward", {}, {"legacy": True}, False, vllm_images.Images(long=True), (0.10, 1.6)),
        ("forward", {}, {}, False, vllm_images.Images(long=True), (0.06, 0.06)),
        ("forward", {}, {"legacy": True}, False, KEPT, (0.25, 0.6)),
        ("encoder", {}, {}, True, KEPT, (0.15, 0.3)),
        ("encoder", {}, {}, False, KEPT, (0.15, 0.18)),
        ("forward", {"mla": LATENT}, {}, False, KEPT, (0.10, 1.5)),
        ("sampler", {"mla": LATENT}, {}, False, vllm_images.NO_IMAGES, (0.03, 0.03)),
        ("forward", {"experts": 1}, {}, True, KEPT, (0.05, 0.30)),
        ("forward", {"experts": 1}, {}, False, KEPT, (0.06, 0.06)),
        ("forward", {}, {}, True, vllm_images.NO_IMAGES, (0.06, 0.06)),
        ("forward", {}, {"runner_v2": True}, False, KEPT, (0.10, 0.15)),
        ("forward", {}, {}, False, KEPT, (0.02, 0.05)),
    ],
)
def test_the_first_case_that_holds_gives_the_band(name, shaped, more, thin, images, expected):
    assert expected == profile._band(name, shape(**shaped), chosen(**more), thin=thin, images=images)
