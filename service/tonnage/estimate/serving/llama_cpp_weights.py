"""A GGUF file by what llama.cpp places as a whole: the input on the host, every layer, the output matrix."""

from collections.abc import Mapping
from itertools import accumulate

from msgspec import Struct

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import Stored, stored_tensors
from tonnage.estimate.shards import matrix_bytes
from tonnage.estimate.weights import is_token_embedding
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model

_TOWERS = frozenset({"vision", "projector", "audio"})


class FileWeights(Struct, frozen=True, kw_only=True):
    """Sizes of the parts of a file. [bytes]"""

    input: int
    """Token embedding: always on the host."""
    output: int
    """Final norm and output matrix; a tied one is a second copy of the embedding."""
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    """Routed experts of every layer, which -cmoe leaves on the host."""
    projector: int
    """Vision and audio towers: a file of their own (mmproj), in 16 bit."""
    before: tuple[int, ...]
    """Sizes of all layers before each, and of all at the end."""
    largest_expert_tensor: int

    @property
    def total(self) -> int:
        """The file without towers. [bytes]"""
        return self.input + self.output + self.before[-1]


@remembered(1024)
def file_weights(
    model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat], known_bytes: int | None
) -> FileWeights:
    """
    Parts of the file.

    Args:
        model: Architecture.
        weight_format: File type, GGML type or plain dtype.
        formats: GGML types by catalogue id.
        known_bytes: Size of a known file; every part is scaled to it.

    Returns:
        Sizes by part.
    """
    if not model.known:
        return _count_only(model, weight_format, known_bytes)
    parts = {"first": 0, "last": 0, "tower": 0}
    layers = [0] * model.num_hidden_layers
    experts = [0] * model.num_hidden_layers
    largest = tied = 0
    for entry in stored_tensors(model, weight_format, formats):
        size = _bytes(entry)
        if entry.place != "layers":
            tower = entry.tensor.component in _TOWERS
            parts["tower" if tower else entry.place] += size
            tied += size if is_token_embedding(entry.tensor, model) else 0
            continue
        routed = entry.tensor.component == "routed_experts"
        largest = max(largest, size) if routed else largest
        for layer in entry.layers:
            layers[layer] += size
            experts[layer] += size if routed else 0
    if model.tie_word_embeddings:
        parts["last"] += tied
    towers = sum(2 * t.elements for t in model.outside if t.component in _TOWERS)
    found = _parts(parts["first"], parts["last"], layers, experts, towers=towers, largest=largest)
    return found if known_bytes is None else _scaled(found, known_bytes, tied if model.tie_word_embeddings else 0)


def _bytes(entry: Stored) -> int:
    tensor = entry.tensor
    return tensor.experts * matrix_bytes(tensor.out_features, tensor.in_features, entry.format)


def _parts(
    first: int, last: int, layers: list[int], experts: list[int], *, towers: int = 0, largest: int = 0
) -> FileWeights:
    return FileWeights(
        input=first,
        output=last,
        layers=tuple(layers),
        experts=tuple(experts),
        projector=towers,
        before=(0, *accumulate(layers)),
        largest_expert_tensor=largest,
    )


def _scaled(found: FileWeights, known_bytes: int, tied: int) -> FileWeights:
    stored = found.total - tied or 1
    return _parts(
        known_bytes * found.input // stored,
        known_bytes * found.output // stored,
        [known_bytes * size // stored for size in found.layers],
        [known_bytes * size // stored for size in found.experts],
        towers=found.projector,
        largest=known_bytes * found.largest_expert_tensor // stored,
    )


def _count_only(model: Model, weight_format: WeightFormat, known_bytes: int | None) -> FileWeights:
    return _parts(0, 0, [known_bytes or weight_format.of_count(model.parameters_total)], [0])
