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
    assert 4_096 == assumed(old)["serving.max_num_batched_tokens"]


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
