from cards import LLAMA_8B, answer, assumed, size

from tonnage.units import GiB

TRT = {"engine": "tensorrt-llm"}
CARD = {"gpu": "a100-80-sxm"}


def test_the_pool_is_nine_tenths_of_what_is_left():
    report = answer(LLAMA_8B, placement=CARD, **TRT, max_model_len=8_192)
    used = sum(i.bytes.expected for p in report.phases if p.phase == "profile" for i in p.items)

    assert abs(report.kv_cache.pool.expected - 0.9 * (report.capacity.usable_bytes - used)) <= 1
    assert report.kv_cache.capacity_tokens.expected == report.kv_cache.pool.expected // 131_072


def test_a_built_engine_keeps_activations_decoder_and_runtime_buffers():
    engine = answer(LLAMA_8B, placement=CARD, **TRT, backend="tensorrt", max_model_len=8_192, engine_version="0.18.0")
    torch = answer(LLAMA_8B, placement=CARD, **TRT, backend="pytorch", max_model_len=8_192)

    assert size(engine, "sampler", "idle") > 4 * GiB
    assert 0 == size(torch, "sampler", "idle")
    assert 2_048 == assumed(engine)["serving.max_batch_size"]


def test_a_low_fraction_that_holds_no_request_is_excluded():
    report = answer(LLAMA_8B, placement={"gpu": "rtx-4090"}, **TRT, max_model_len=131_072, free_gpu_memory_fraction=0.1)

    assert "excluded" == report.verdict


def test_the_demand_replaces_the_pool_in_what_is_required():
    report = answer(
        LLAMA_8B, placement=CARD, **TRT, max_model_len=8_192, concurrency=1, input_tokens=1_000, output_tokens=24
    )

    assert "met" == report.verdict
    assert report.required.expected < report.claimed_bytes


def test_without_a_card_there_is_no_claim():
    report = answer(LLAMA_8B, **TRT, max_model_len=8_192)

    assert report.claimed_bytes is None
    assert 8_192 * 131_072 == size(report, "kv_cache")


def test_ranks_share_weights():
    two = answer(LLAMA_8B, placement=CARD | {"tensor_parallel_size": 2}, **TRT, max_model_len=8_192)
    one = answer(LLAMA_8B, placement=CARD, **TRT, max_model_len=8_192)

    assert size(two, "weights") < 0.51 * size(one, "weights")
    assert size(two, "communication") > 0 == size(one, "communication")


def test_an_engine_is_built_for_no_more_tokens_than_its_longest_requests():
    short = answer(LLAMA_8B, placement=CARD, **TRT, backend="tensorrt", max_model_len=512, max_batch_size=1)
    stated = answer(
        LLAMA_8B, placement=CARD, **TRT, backend="tensorrt", max_model_len=512, max_batch_size=1, max_num_tokens=8_192
    )

    assert 512 == assumed(short)["serving.max_num_tokens"] == assumed(stated)["serving.max_num_tokens"]
    assert size(short, "activations", "idle") == 2 * 512 * 10 * 14_336


def test_the_first_releases_pack_prompts_of_their_default_length():
    report = answer(LLAMA_8B, placement=CARD, **TRT, engine_version="0.5.0", max_model_len=5_120, max_batch_size=25)

    assert 25 * 2_048 == assumed(report)["serving.max_num_tokens"]
    assert report.kv_cache.capacity_tokens.expected > 0


def test_newer_decoders_keep_fewer_rows_a_slot():
    old, new = (
        size(
            answer(LLAMA_8B, placement=CARD, **TRT, backend="tensorrt", max_model_len=8_192, engine_version=version),
            "sampler",
            "idle",
        )
        for version in ("0.18.0", "0.19.0")
    )

    assert new < old


def test_context_and_pool_share_what_is_left():
    report = answer(LLAMA_8B, placement={"gpu": "rtx-3050-8"}, **TRT, max_model_len=512, max_batch_size=1)
    met = answer(
        "Qwen/Qwen2.5-1.5B-Instruct", placement={"gpu": "rtx-3050-8"}, **TRT, max_model_len=512, max_batch_size=1
    )

    assert "excluded" == report.verdict
    assert "met" == met.verdict


def test_cutlass_pads_both_sides_of_mxfp4_experts():
    padded = size(answer("openai/gpt-oss-20b", placement=CARD, **TRT, backend="pytorch"), "weights")
    engine = size(answer("openai/gpt-oss-20b", placement=CARD, **TRT, backend="tensorrt"), "weights")

    assert 1.03 < padded / engine < (2_944 / 2_880) ** 2
