from cards import LLAMA_8B, answer, assumed, size

TGI = {"engine": "tgi"}
CARD = {"gpu": "a100-80-sxm"}


def test_nine_tenths_of_the_card_are_used_before_graphs():
    report = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192)
    used = sum(i.bytes.expected for p in report.phases if p.phase == "profile" for i in p.items)

    assert abs(report.kv_cache.pool.expected + used - 0.9 * report.capacity.usable_bytes) <= 1


def test_older_servers_used_more():
    old = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192, engine_version="2.0.0")
    new = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192, engine_version="3.3.7")

    assert old.kv_cache.pool.expected > new.kv_cache.pool.expected
    assert 4_145 == assumed(old)["serving.max_num_batched_tokens"]


def test_a_memory_fraction_scales_the_budget():
    half = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192, gpu_memory_utilization=0.5)
    whole = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192)

    assert half.kv_cache.pool.expected < whole.kv_cache.pool.expected // 2


def test_graphs_stand_beside_the_budget():
    report = answer(LLAMA_8B, placement=CARD, **TGI, max_model_len=8_192)

    assert size(report, "cuda_graphs", "idle") > 0
    assert "met" == report.verdict


def test_a_model_too_large_for_its_budget_is_excluded():
    report = answer(LLAMA_8B, placement={"gpu": "t4"}, **TGI, max_model_len=8_192)

    assert "excluded" == report.verdict


def test_before_3_the_cache_took_a_part_of_what_the_warm_up_left():
    report = answer(LLAMA_8B, placement=CARD, **TGI, engine_version="2.0.0", gpu_memory_utilization=0.8)
    used = sum(i.bytes.expected for p in report.phases if p.phase == "profile" for i in p.items)

    assert abs(report.kv_cache.pool.expected - 0.95 * (0.8 * report.capacity.usable_bytes - used)) <= 2
    assert 4_096 == assumed(report)["serving.max_model_len"]
    assert 4 * 4_145 * 128_256 * 2 == size(report, "logits", "profile")


def test_from_3_on_the_warm_up_keeps_no_logits_of_prompts():
    old, new = (
        size(
            answer(LLAMA_8B, placement=CARD, **TGI, engine_version=version, max_num_batched_tokens=4_145),
            "logits",
            "profile",
        )
        for version in ("2.4.1", "3.0.0")
    )

    assert new < old // 8
