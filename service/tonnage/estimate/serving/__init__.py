"""Serving: one accounting per engine, found by the type of the card's serving part."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tonnage.errors import Unsupported
from tonnage.estimate.serving import llama_cpp, mlx, ollama, sglang, tensorrt_llm, tgi, transformers, vllm
from tonnage.estimate.serving.bare_count import without_architecture
from tonnage.spec import card
from tonnage.spec.report import Account, Deciding, GpuLoad
from tonnage.spec.workload import Workload

__all__ = ["account", "comparing"]

_ACCOUNTS: dict[type[card.ServingCommon], Callable[[Workload], Account]] = {
    card.Vllm: vllm.account,
    card.Sglang: sglang.account,
    card.LlamaCpp: llama_cpp.account,
    card.Ollama: ollama.account,
    card.Transformers: transformers.account,
    card.TensorRtLlm: tensorrt_llm.account,
    card.Tgi: tgi.account,
    card.Mlx: mlx.account,
}


_COMPARISONS: dict[type[card.ServingCommon], Callable[[Workload], Callable[[Workload], Deciding]]] = {
    card.Vllm: vllm.Comparison
}
"""Engines that tell what decides from what is only shown."""


def comparing(workload: Workload) -> Callable[[Workload], Deciding] | None:
    """
    How layouts of a card are compared.

    Args:
        workload: Resolved card with a serving part.

    Returns:
        What of the account decides, of the same card on any GPU and placement; None where only the whole account is known.
    """
    found = _COMPARISONS.get(type(workload.serving))  # type: ignore[arg-type]  # None has none
    return None if found is None or not workload.model.known else found(workload)


def account(workload: Workload) -> Account:
    """
    What the card's engine makes of it.

    Args:
        workload: Resolved card with a serving part.

    Returns:
        Loads by GPU, cache, claim, findings.

    Raises:
        Unsupported: No accounting exists for the engine.
    """
    engine = type(workload.serving)
    found = _ACCOUNTS.get(engine)  # type: ignore[arg-type]
    if found is None:
        raise Unsupported(
            f"no accounting for {engine.__name__}", (e.__name__ for e in _ACCOUNTS), pointer="/serving/engine"
        )
    answer, placement = found(workload), workload.placement
    if not workload.model.known:
        answer = without_architecture(answer)
    copies = placement.data_parallel_size * placement.context_parallel_size
    if copies == 1 or len(_ranks(answer.loads)) == placement.gpus:
        return answer
    return replace(answer, loads=tuple(_on_every_replica(answer.loads, copies)))


def _ranks(loads: tuple[GpuLoad, ...]) -> set[int]:
    return {rank for load in loads for rank in load.ranks}


def _on_every_replica(loads: tuple[GpuLoad, ...], copies: int) -> Iterator[GpuLoad]:
    """Replicas hold the same; their ranks follow one another."""
    span = max(_ranks(loads)) + 1
    for load in loads:
        yield replace(load, ranks=tuple(copy * span + rank for copy in range(copies) for rank in load.ranks))
