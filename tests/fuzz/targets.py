"""
What reads text from strangers, each as a function of bytes: the bytes choose a seed and how it is spoilt.

The same functions are driven at random, by coverage (atheris) and by Hypothesis. A refusal is one of `REFUSALS` in watch.py;
anything else that is raised is a finding.
"""

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tonnage.api.estimate import decode_card, read_card
from tonnage.api.failures import as_problem
from tonnage.api.fit import decode_request, read_request
from tonnage.api.negotiation import choose
from tonnage.api.query import parameters
from tonnage.architecture import read_config, read_gguf
from tonnage.catalog import Catalog, load_catalog
from tonnage.catalog.imports import price_list
from tonnage.evidence import log_text
from tonnage.evidence.answer import estimate
from tonnage.fit.pricing import duration_hours, money
from tonnage.units import SIZE_PATTERN, format_size, parse_size

_TESTS = Path(__file__).parent.parent
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, "", "x", "nan", "8", "1e9",
    [], [0], [None], ["x"] * 3, [1] * 300, {}, {"x": 1}, {"type": "yarn", "factor": 0}, {"quant_method": "gptq"}, [[]], [{}],
    "\ud83d\ude00",
)  # fmt: skip
_PIECES = (
    "GiB", "MiB", " GB", "MB", " B", ".", ",", "-", "0", "9" * 20, " bytes", "\n", "\r", "\u2028", " ", "\x00", "(", ")", ";",
    "\u0663", "%", "CUDA0", "out of memory", "Tried to allocate ", " free; ", "of which ", "GPU 0", "1e9", "é", "|", "=",
)  # fmt: skip


class Choices:
    """Decisions read from bytes; zero once they have run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, end: int) -> int:
        part = self._data[self._at : self._at + 2]
        self._at += 2
        return int.from_bytes(part, "little") % end

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def rest(self) -> bytes:
        return self._data[self._at :]


@cache
def catalog() -> Catalog:
    return load_catalog()


@cache
def configs() -> list[dict[str, Any]]:
    return [json.loads(msgspec.json.encode(model.config)) for model in catalog().models if model.config]


@cache
def logs() -> list[str]:
    samples = json.loads((_TESTS / "evidence" / "log_samples.json").read_text(encoding="utf-8"))["samples"]
    return ["\n".join(sample["text"]) for sample in samples]


@cache
def headers() -> list[dict[str, Any]]:
    from tests.architecture_readers.test_gguf_header import HEADERS

    return [header | {"tokenizer.ggml.tokens": ["x"] * 3} for _, header in HEADERS.values()]


def spoilt(document: Any, choices: Choices) -> Any:
    """A document with a few values replaced, dropped, moved or doubled."""
    made = json.loads(json.dumps(document))
    for _ in range(choices.below(5)):
        place: Any = made
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = choices.of(keys)
            inner = place[key]
            if isinstance(inner, dict | list) and inner and choices.below(3):
                place = inner
                continue
            _spoil(place, key, keys, choices)
            break
    return made


def _spoil(place: Any, key: Any, keys: list[Any], choices: Choices) -> None:
    match choices.below(6):
        case 0:
            del place[key]
        case 1:
            place[key] = copy.deepcopy(place[choices.of(keys)])
        case 2 if isinstance(place[key], int):
            place[key] = place[key] * choices.of((-1, 0, 2, 3)) + choices.of((0, 1, -1))
        case 3:
            place[key] = [place[key]] * choices.below(5)
        case _:
            place[key] = copy.deepcopy(choices.of(_ODD))


def spoilt_text(text: str, choices: Choices) -> str:
    """A text with pieces put in, cut out and doubled."""
    for _ in range(1 + choices.below(6)):
        start = choices.below(len(text) + 1)
        end = min(len(text), start + choices.below(12))
        match choices.below(5):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + choices.of(_PIECES) * (1 + choices.below(40)) + text[start:]
            case 2:
                text = text[:start] + text[start:end] * (1 + choices.below(200)) + text[end:]
            case 3:
                text = text[:start] + choices.of(logs()) + text[start:]
            case _:
                text = text[:start] + chr(choices.below(0x2FF) + 1) + text[end:]
    return text


def log(data: bytes) -> None:
    choices = Choices(data)
    seed = choices.of(logs()) if choices.below(8) else choices.rest().decode("utf-8", "replace")
    reading = log_text.read(spoilt_text(seed, choices))
    msgspec.json.encode(reading)
    for name, value in reading.numbers.items():
        if isinstance(value, float) and not 0 <= value < 1e12:
            raise AssertionError(f"{name} is {value}")


def config(data: bytes) -> None:
    choices = Choices(data)
    read_config(spoilt(choices.of(configs()), choices))


def gguf(data: bytes) -> None:
    choices = Choices(data)
    read_gguf(spoilt(choices.of(headers()), choices))


def size(data: bytes) -> None:
    choices = Choices(data)
    text = spoilt_text(choices.of(("6 GiB", "24 GB", "512MiB", "1.5 TiB", "0 B", "12 G")), choices)[:60]
    fits = re.match(SIZE_PATTERN, text, re.ASCII) is not None
    try:
        amount = parse_size(text)
    except ValueError:
        if fits:
            raise AssertionError(f"the schema allows {text!r}") from None
        raise
    if amount < 0 or not fits or not format_size(amount):
        raise AssertionError(f"{text!r} is {amount}")


def duration(data: bytes) -> None:
    choices = Choices(data)
    text = spoilt_text(choices.of(("3 days", "12 hours", "1 month", "2w", "0.5 h")), choices)[:40]
    if duration_hours(text) < 0:
        raise AssertionError(text)


def price(data: bytes) -> None:
    choices = Choices(data)
    text = spoilt_text(choices.of(("500 USD", "2.50EUR", "0 JPY")), choices)[:40]
    if money(text)[0] < 0:
        raise AssertionError(text)


def prices(data: bytes) -> None:
    choices = Choices(data)
    rows = "provider,gpu,price,gpus_per_host,host_memory\nshop,h100-sxm,2.5,8,512 GiB\nshop,a100-80gb-sxm,1,1,\n"
    price_list(catalog(), spoilt_text(rows, choices)[:5000], source="test", as_of="2026-01-01")


_CARDS: tuple[dict[str, Any], ...] = (
    {"model": "Qwen/Qwen3-0.6B", "serving": {"engine": "vllm", "max_model_len": 4096}, "placement": {"gpu": "h100-sxm"}},
    {"model": {"parameters": 7_000_000_000}, "weights": {"format": "bf16"}, "training": {"method": "lora"}},
    {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "llama.cpp"}, "reserve": "2 GiB"},
    {"model": "openai/gpt-oss-20b", "training": {"method": "full", "optimizer": "adamw"}, "placement": {"gpu": "l40s"}},
    {"model": "Qwen/Qwen3-0.6B", "serving": {"engine": "vllm"}, "failure": {"message": "Tried to allocate 2.00 GiB"}},
)  # fmt: skip


def card(data: bytes) -> None:
    """A card as it comes over HTTP, up to its answer."""
    choices = Choices(data)
    body = json.dumps(spoilt(choices.of(_CARDS), choices))
    if not choices.below(6):
        body = spoilt_text(body, choices)
    _refused_kindly(
        lambda: msgspec.json.encode(estimate(catalog(), decode_card(body.encode("utf-8", "surrogatepass"))))
    )


def request(data: bytes) -> None:
    choices = Choices(data)
    document = choices.of(_CARDS) | {
        "requirements": {"min_bandwidth": "2 TB/s", "duration": "3 days", "max_price": "500 USD"}
    }
    _refused_kindly(lambda: decode_request(json.dumps(spoilt(document, choices)).encode()))


def query(data: bytes) -> None:
    choices = Choices(data)
    text = choices.of(
        (
            "model=Qwen/Qwen3-0.6B&engine=vllm&gpu=h100-sxm&max_model_len=4096",
            "parameters=7000000000&method=lora",
            "x=%zz",
        )
    )
    raw = spoilt_text(text, choices).encode("utf-8", "replace")
    read = choices.of((read_card, read_request))
    _refused_kindly(lambda: read(parameters(raw)))


def accept(data: bytes) -> None:
    choices = Choices(data)
    text = spoilt_text("application/json;q=0.5, text/*;q=1, */*;q=0", choices)
    _refused_kindly(lambda: choose(text.encode("latin-1", "replace"), ("application/json", "text/csv")))


def _refused_kindly(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        if as_problem(error).kind.status >= 500:
            raise
        raise ValueError("refused") from error


TARGETS: dict[str, Callable[[bytes], None]] = {
    "log": log, "config": config, "gguf": gguf, "size": size, "duration": duration, "price": price, "prices": prices,
    "card": card, "request": request, "query": query, "accept": accept,
}  # fmt: skip
