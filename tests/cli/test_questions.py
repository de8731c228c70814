"""`tonnage estimate` and `tonnage fit` say what the service says, and their exit codes are verdicts."""

import json
import sys

import httpx
import pytest
import yaml

from tonnage.api.app import create_app
from tonnage.api.settings import Settings
from tonnage.cli.cards import CardReader
from tonnage.spec.card import SizingCard

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SERVING = (LLAMA, "engine=vllm", "max_model_len=8192")


async def asked(path, **query):
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tonnage.test") as client:
        return (await client.get(path, params=query)).json()


async def test_an_estimate_is_the_one_of_the_service(tonnage):
    ours = json.loads(tonnage("estimate", *SERVING, "gpu=l40s", "--format", "json").out)

    assert await asked("/estimate", model=LLAMA, engine="vllm", max_model_len=8192, gpu="l40s") == ours


async def test_a_fit_is_the_one_of_the_service(tonnage):
    ours = json.loads(tonnage("fit", *SERVING, "gpus=l40s,h100-sxm", "duration=3 days", "--format", "json").out)

    assert (
        await asked("/fit", model=LLAMA, engine="vllm", max_model_len=8192, gpus="l40s,h100-sxm", duration="3 days")
        == ours
    )


async def test_models_that_fit_are_those_of_the_service(tonnage):
    ended = tonnage("models", "l40s", "engine=vllm", "max_model_len=8192", "q=qwen3-8b", "--format", "json")

    assert await asked("/fit/models", gpu="l40s", engine="vllm", max_model_len=8192, q="qwen3-8b") == json.loads(
        ended.out
    )
    assert 0 == ended.code


@pytest.mark.parametrize(("words", "code"), [(("l4", "q=Llama-3.2-1B"), 0), (("t4", "q=Llama-3.1-405B"), 3)])
def test_the_exit_code_of_models_is_the_best_verdict_among_them(tonnage, words, code):
    assert code == tonnage("models", *words, "engine=transformers").code


def test_options_and_pairs_are_the_same_words(tonnage):
    pairs = tonnage("estimate", *SERVING, "gpu=l40s", "--format", "json", "--fields", "digest").out
    options = ("--max-model-len", "8192", "--model", LLAMA, "--engine=vllm", "--gpu", "l40s")

    assert pairs == tonnage("estimate", *options, "--format", "json", "--fields", "digest").out
    assert pairs == tonnage("estimate", "--max_model_len", "8192", LLAMA, "gpu=l40s", "--engine", "vllm", "--format",
                            "json", "--fields", "digest").out  # fmt: skip


@pytest.mark.parametrize(("gpu", "length", "code"), [("h100-sxm", 8192, 0), ("rtx-4090", 131072, 3), ("t4", 2048, 3)])
def test_the_exit_code_of_an_estimate_is_its_verdict(tonnage, gpu, length, code):
    ended = tonnage("estimate", LLAMA, "engine=vllm", f"max_model_len={length}", f"gpu={gpu}")

    assert code == ended.code, ended.out


def test_a_verdict_to_confirm_is_exit_code_2(tonnage):
    assert 2 == tonnage("estimate", *SERVING, "gpu=h100-sxm", "engine_version=99.0").code


def test_without_a_gpu_there_is_no_verdict_and_no_failure(tonnage):
    assert 0 == tonnage("estimate", *SERVING).code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("model.parameters=7000000000", "reserve=6 GiB", "duration=3 days", "skus=iteragpu:rtx-4090:1x:3d"), 2),
        (("model.parameters=405000000000", "gpus=rtx-4090", "max_gpus=1"), 3),
        ((*SERVING, "duration=3 days"), 0),
    ],
)
def test_the_exit_code_of_a_fit_is_what_came_out(tonnage, words, code):
    assert code == tonnage("fit", *words).code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody/nothing",), "unknown model"),
        ((LLAMA, "gpu=h100-sxn"), "did you mean h100-sxm"),
        ((LLAMA, "gpuu=l40s"), "did you mean gpu"),
        ((LLAMA, "--gpuu", "l40s"), "did you mean --gpu?"),
        ((LLAMA, "--gpu", "l40s", "gpu=l40s"), "gpu is given twice"),
        ((LLAMA, "--gpu", "l40s", "--gpu", "l40s"), "given twice"),
        ((LLAMA, "max_model_len=8192"), "add engine=vllm"),
        ((LLAMA, "reserve=6G"), "6G"),
        ((), "name a model"),
        ((LLAMA, "--format", "svg", "--fields", "digest"), "always shows the whole answer"),
        ((LLAMA, "--card", "nowhere.json"), "nowhere.json"),
        ((LLAMA, "--overlay", "nowhere"), "not a directory"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_exit_code_1(tonnage, words, said):
    ended = tonnage("estimate", *words)

    assert (1, "") == (ended.code, ended.out)
    assert said in ended.err
    assert 1 == ended.err.count("\n")


def test_every_format_says_the_same_verdict(tonnage):
    words = ("estimate", *SERVING, "gpu=l40s", "--format")

    assert "verdict    met" in tonnage(*words, "table").out
    assert "met" == yaml.safe_load(tonnage(*words, "yaml").out)["verdict"]
    assert "GPU memory: met" in tonnage(*words, "markdown").out
    assert tonnage(*words, "svg").out.startswith("<svg")
    assert yaml.safe_load(tonnage(*words, "yaml").out) == json.loads(tonnage(*words, "json").out)


def test_a_card_in_a_file_is_the_same_card(tonnage, tmp_path):
    card = {"model": LLAMA, "serving": {"engine": "vllm", "max_model_len": 8192}, "placement": {"gpu": "l40s"}}
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "card.toml").write_text(
        f'model = "{LLAMA}"\n[serving]\nengine = "vllm"\nmax_model_len = 8192\n[placement]\ngpu = "l40s"\n'
    )
    digest = tonnage("estimate", *SERVING, "gpu=l40s", "--format", "json", "--fields", "digest").out

    for name in ("card.json", "card.toml"):
        assert digest == tonnage("estimate", "--card", tmp_path / name, "--format", "json", "--fields", "digest").out


def test_the_line_wins_over_the_file(tonnage, tmp_path):
    card = {"model": LLAMA, "serving": {"engine": "vllm", "max_model_len": 65536}, "placement": {"gpu": "t4"}}
    (tmp_path / "card.json").write_text(json.dumps(card))
    words = ("gpu=l40s", "--max-model-len", "8192", "--format", "json", "--fields", "digest")

    assert (
        tonnage("estimate", *SERVING, "gpu=l40s", "--format", "json", "--fields", "digest").out
        == tonnage("estimate", "--card", tmp_path / "card.json", *words).out
    )


def test_shared_names_belong_to_the_section_of_the_file(tonnage, tmp_path):
    card = {"model": LLAMA, "training": {"lora": {"rank": 8}, "method": "lora"}}
    (tmp_path / "card.json").write_text(json.dumps(card))

    alone = tonnage("estimate", LLAMA, "lora.target_modules=q_proj")
    on_top = tonnage("estimate", "--card", tmp_path / "card.json", "lora.target_modules=q_proj")

    assert "a field of serving and of training" in alone.err
    assert "a field of serving and of training" not in on_top.err


def test_a_card_comes_from_standard_input(process):
    card = json.dumps({"model": {"parameters": 7_000_000_000}, "reserve": "6 GiB"})

    ended = process("estimate", "--card", "-", "--format", "json", "--fields", "required", input=card)

    assert {"required": {"low": 20_442_450_944, "expected": 20_442_450_944, "high": 20_442_450_944}} == json.loads(
        ended.out
    )


@pytest.mark.parametrize("text", ["[]", "{", '{"model": "x", "model"}', "[" * 100_000])
def test_a_file_without_a_card_is_refused(tonnage, tmp_path, text):
    (tmp_path / "card.json").write_text(text)

    assert 1 == tonnage("estimate", "--card", tmp_path / "card.json").code


def test_every_query_name_is_an_option():
    import argparse

    parser, reader = argparse.ArgumentParser(), CardReader(SizingCard)
    reader.arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings}

    assert set() == {f"--{name}" for name in reader._query.documented} - options


def test_help_describes_every_option(tonnage):
    ended = tonnage("estimate", "--help")

    assert 0 == ended.code
    assert "--max-model-len" in ended.out
    assert "one of pretrain, sft" in " ".join(ended.out.split())


def test_an_estimate_needs_no_web_framework(process):
    code = (
        "import sys; from tonnage.cli import main\n"
        "try: main(['estimate', 'model.parameters=7000000000'])\n"
        "except SystemExit: pass\n"
        "heavy = {'litestar', 'redis', 'httpx', 'uvicorn', 'prometheus_client', 'asyncio.base_events'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    import subprocess

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "loaded: []" in result.stdout
