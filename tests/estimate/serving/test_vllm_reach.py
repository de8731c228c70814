"""Cards that differ in a longest request that cuts nothing have everything but the cache in common."""

import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate.accounts import account_of
from tonnage.estimate.serving.vllm_reach import reach
from tonnage.kept import forget
from tonnage.spec.card import Placement, SizingCard, Vllm

CATALOG = load_catalog()
DENSE = "meta-llama/Llama-3.1-8B-Instruct"
LATENT = "deepseek-ai/DeepSeek-V2-Lite"
SPARSE = "deepseek-ai/DeepSeek-V3.2"
SEEING = "google/gemma-3-12b-it"
VIDEO = "Qwen/Qwen2.5-VL-7B-Instruct"


def workload(model, length, **serving):
    card = SizingCard(model=model, serving=Vllm(max_model_len=length, **serving), placement=Placement(gpu="h200-sxm"))
    return resolve(CATALOG, card)


def same(model, one, other, **serving):
    return reach(workload(model, one, **serving)) == reach(workload(model, other, **serving))


@pytest.mark.parametrize(
    ("model", "one", "other", "alike"),
    [
        (DENSE, 9000, 90_000, True),
        (LATENT, 8192, 90_000, True),
        (LATENT, 8191, 8192, False),
        (SPARSE, 9000, 90_000, False),
        (SEEING, 9000, 90_000, True),
        (SEEING, 100, 200, False),
    ],
)
def test_lengths_are_told_apart_as_far_as_something_is_cut_by_them(model, one, other, alike):
    assert alike == same(model, one, other)


def test_a_length_that_bounds_the_batch_is_told_apart():
    assert not same(DENSE, 64, 65, max_num_seqs=1)
    assert same(DENSE, 64, 65, max_num_seqs=1, max_num_batched_tokens=2048)


def test_engines_before_v1_profile_the_longest_request():
    assert not same(DENSE, 9000, 90_000, engine_version="0.6.6")


@pytest.mark.parametrize("model", [DENSE, LATENT, SEEING, VIDEO])
@pytest.mark.parametrize("first", [300, 4000, 8192, 20_000, 60_000])
def test_a_card_after_another_length_is_answered_as_if_it_were_the_first(model, first):
    lengths = (500, 3500, 9000, 33_000)
    forget()
    account_of(workload(model, first))
    after = [account_of(workload(model, length)) for length in lengths]

    alone = []
    for length in lengths:
        forget()
        alone.append(account_of(workload(model, length)))
    assert alone == after
