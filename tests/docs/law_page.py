"""docs/laws.md and the table of docs/method.md, made from the code and from answers."""

import ast
import importlib
import inspect
import re
import textwrap
from collections import defaultdict

import msgspec

from tonnage.api.law_book import Law, law_book
from tonnage.catalog import load_catalog
from tonnage.evidence import estimate
from tonnage.spec.card import SizingCard

HEAD = """# Laws

Every formula of the estimates: {count} functions of `tonnage.laws`, each with its inputs, its result, its code and its source.
They take and give whole numbers, need nothing but the standard library, and can be called alone. `GET /catalog/laws` serves
the same records.

This page is made from the code; `make readme` writes it anew.
"""


def laws() -> list[Law]:
    """The functions; the book lists their topics too."""
    return [law for law in law_book() if law.id != f"laws.{law.topic}"]


def laws_page() -> str:
    """The whole page."""
    by_topic: dict[str, list[Law]] = defaultdict(list)
    for law in laws():
        by_topic[law.topic].append(law)
    parts = [HEAD.format(count=len(laws()))]
    for topic, members in sorted(by_topic.items()):
        module = importlib.import_module(f"tonnage.laws.{topic}")
        parts.append(f"## {topic}\n\n{_first_paragraph(module)}\n")
        parts += [_entry(law, getattr(module, law.id.rpartition(".")[2])) for law in members]
    return "\n".join(parts)


def _entry(law: Law, function: object) -> str:
    inputs = "".join(f"- `{i.name}`: {_plain(i.description)}\n" for i in law.inputs)
    lines = [f"### {law.id}\n", _plain(law.summary) + "\n"]
    if inputs:
        lines.append(inputs)
    return "\n".join(
        [
            *lines,
            f"Result: {_plain(law.returns)}\n",
            f"```python\n{_body(function)}\n```\n",
            f"Source: {_plain(law.source)}\n",
        ]
    )


def _body(function: object) -> str:
    """The function without its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    lines = source.splitlines()
    head, first = tree.body[0], tree.body[1]
    return "\n".join(
        [*lines[: head.lineno - 1], *lines[head.end_lineno : first.lineno - 1], *lines[first.lineno - 1 :]]
    )


def _first_paragraph(module: object) -> str:
    return _plain(" ".join((inspect.getdoc(module) or "").split("\n\n")[0].split()))


def _plain(text: str) -> str:
    """Text that Markdown shows as it stands."""
    return re.sub(r"([<*_\[\]])", r"\\\1", text)


CARDS = {
    "vLLM": {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "vllm", "max_model_len": 8192}},
    "SGLang": {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "sglang", "max_model_len": 8192}},
    "llama.cpp": {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "weights": {"format": "q4_k_m"},
        "serving": {"engine": "llama.cpp", "max_model_len": 8192},
    },
    "Transformers": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "serving": {"engine": "transformers", "input_tokens": 2048, "output_tokens": 256},
    },
    "TensorRT-LLM": {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "tensorrt-llm", "max_model_len": 8192}},
    "TRL, LoRA": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "training": {
            "framework": "trl", "method": "lora", "lora": {"rank": 16}, "micro_batch_size": 1, "sequence_length": 2048,
        },
    },
    "Megatron": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "training": {"framework": "megatron", "micro_batch_size": 1, "sequence_length": 2048},
        "placement": {"tensor_parallel_size": 4, "data_parallel_size": 2},
    },
}  # fmt: skip
"""One card per way of accounting, for the table of laws by item."""


def method_table() -> str:
    """Which law makes which item, by engine and framework, as answers say it."""
    catalog = load_catalog()
    rows = ["| engine or framework | item | law | known as |", "| --- | --- | --- | --- |"]
    for name, card in CARDS.items():
        placement = {"gpu": "h100-sxm", **card.get("placement", {})}
        answer = estimate(catalog, msgspec.convert({**card, "placement": placement}, SizingCard))
        seen = {(i.component, i.law, i.basis) for phase in answer.phases for i in phase.items}
        rows += [f"| {name} | `{item}` | `{law}` | {basis} |" for item, law, basis in sorted(seen)]
    return "\n".join(rows) + "\n"


MARKED = re.compile(r"(?<=<!-- laws by item -->\n).*?(?=<!-- /laws by item -->)", re.DOTALL)


def with_method_table(page: str) -> str:
    """docs/method.md with the table as answers have it."""
    return MARKED.sub(lambda _: method_table(), page)
