"""What an engine keeps between cards must not show in an answer."""

import pytest
from cards import DEEPSEEK_V3, LLAMA_8B, answer

from tonnage.kept import forget

LENGTHS = (4096, None, 50_000)


def ask(engine, config, length):
    stated = {} if length is None else {"max_model_len": length}
    placement = {"gpu": "h200-sxm", "tensor_parallel_size": 8}
    return answer(config, placement=placement, engine=engine, concurrency=20, input_tokens=900, **stated)


@pytest.mark.parametrize("config", [LLAMA_8B, DEEPSEEK_V3], ids=["plain", "latent"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_answer_does_not_depend_on_the_lengths_asked_before(engine, config):
    alone = []
    for length in LENGTHS:
        forget()
        alone.append(ask(engine, config, length))
    forget()
    for length in reversed(LENGTHS):
        ask(engine, config, length)

    assert alone == [ask(engine, config, length) for length in LENGTHS]
    assert len({found.digest for found in alone}) == len(LENGTHS)
