"""A model's step on the tape, once per settings: segments that repeat per layer, and what each leaves behind."""

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.eager import Block
from tonnage.estimate.training.encoder import EncoderBlock, norms_embeddings, norms_output
from tonnage.estimate.training.falcon import FalconBlock
from tonnage.estimate.training.lit import LitBlock
from tonnage.estimate.training.norms import norm_kind, normalised
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.tape import (
    PASS,
    ZERO,
    Form,
    Out,
    Parameter,
    Segment,
    Storage,
    Tape,
    Tensor,
    constant,
    gradient,
    per_logit_token,
    per_token,
    plus,
    scaled,
    times,
    undominated,
)
from tonnage.estimate.training.usual import encodes_only, layer_groups
from tonnage.spec.model import Layer, Model


class Part(Struct, frozen=True):
    """One segment: change over it and highest points above its start."""

    net: Form
    points: tuple[Form, ...]


class StepProfile(Struct, frozen=True, kw_only=True):
    """Forward and backward of one micro-batch; layers of one kind share a part."""

    __hash__ = object.__hash__  # made once per model and recipe: what is made of it is found by identity

    embedding: Part
    forward: tuple[Part, ...]
    """By kind of layer."""
    tail: Part
    """Final norm, head and loss."""
    layer_leaving: tuple[Part, ...]
    """End of forward, by kind of layer: what only forward held is freed."""
    leaving: Part
    tail_backward: Part
    backward: tuple[Part, ...]
    """By kind of layer, without the gradients of weights already there."""
    embedding_backward: Part
    counts: tuple[int, ...]
    """Layers by kind. [unitless]"""


@per_model(maximum=2048)
def step_profile(model: Model, recipe: Recipe) -> StepProfile:
    """
    The step of a model under a recipe.

    Args:
        model: Architecture.
        recipe: What decides which tensors there are.

    Returns:
        Parts as linear forms in the batch.
    """
    kinds = _kinds(model, recipe)
    tape = Tape(autocast=recipe.autocast, accumulates=recipe.accumulates)
    run = _Run(tape, model, recipe, [layer for layer, _ in kinds])
    run.forward()
    run.backward()
    parts = {s.name: _part(s) for s in tape.segments}
    count = len(kinds)
    nothing = Part(ZERO, (ZERO,))
    return StepProfile(
        embedding=parts["embedding"],
        forward=tuple(parts[f"layer {i}"] for i in range(count)),
        tail=parts["tail"],
        layer_leaving=tuple(parts[f"layer {i} leaving"] for i in range(count)),
        leaving=parts["leaving"],
        tail_backward=parts["tail backward"],
        backward=tuple(parts.get(f"layer {i} backward", nothing) for i in range(count)),
        embedding_backward=parts.get("embedding backward", nothing),
        counts=tuple(len(indices) for _, indices in kinds),
    )


def forward_without_gradients(model: Model, recipe: Recipe, *, scored: bool) -> tuple[Form, ...]:
    """
    Highest points of a forward pass in which nothing is kept.

    Args:
        model: Architecture.
        recipe: What decides which tensors there are.
        scored: Head and loss follow the layers.

    Returns:
        Forms above what is resident.
    """
    kinds = _kinds(model, recipe)
    tape = Tape(autocast=recipe.autocast)
    tape.no_grad = True
    run = _Run(tape, model, recipe, [layer for layer, _ in kinds])
    run.without_gradients(scored=scored)
    level, points = ZERO, []
    for segment, count in zip(tape.segments, (1, *(len(indices) for _, indices in kinds), 1), strict=False):
        before = plus(level, times(segment.net, count - 1))
        points += [plus(before, point) for point in segment.points]
        level = plus(before, segment.net)
    return undominated(points)


def offloaded(profile: StepProfile, stash: int) -> StepProfile:
    """
    The step when what layers keep is moved to the host.

    Args:
        profile: The step with everything on the GPU.
        stash: Layers whose kept tensors are on the GPU at a time. [layers]

    Returns:
        The same with so much less per layer.
    """
    share = min(1.0, stash / max(1, sum(profile.counts)))
    return replace(
        profile,
        forward=tuple(Part(_thinned(p.net, share), p.points) for p in profile.forward),
        backward=tuple(Part(_thinned(p.net, share), p.points) for p in profile.backward),
    )


def _thinned(form: Form, share: float) -> Form:
    """Per-token parts of a form by a share; gradients and constants as they are."""
    return (form[0], round(form[1] * share), round(form[2] * share), round(form[3] * share), form[4], form[5])


def _kinds(model: Model, recipe: Recipe) -> list[tuple[Layer, tuple[int, ...]]]:
    """
    Layers that differ, and where they stand.

    In a frozen model the first layer's input needs no gradient, so what stands before its first adapter keeps nothing.
    """
    groups = [(g.layer, g.indices) for g in layer_groups(model)]
    embedded = "embed" in recipe.saved_modules | recipe.adapted
    needs_gradients = recipe.trains or embedded or recipe.checkpointing != "none"
    if needs_gradients:
        return groups
    first, indices = groups[0]
    alone = [(first, indices[:1])]
    return alone + ([(first, indices[1:])] if len(indices) > 1 else []) + groups[1:]


def _learned_positions(layers: list[Layer]) -> bool:
    return any(layer.attention is not None and layer.attention.rotary == "learned" for layer in layers)


def _part(segment: Segment) -> Part:
    return Part(segment.net, undominated(segment.points))


def _code(model: Model, recipe: Recipe) -> type[Block]:
    """Whose layer it is."""
    if recipe.code == "litgpt" and not recipe.scales:
        return LitBlock
    if encodes_only(model):
        return EncoderBlock
    return FalconBlock if model.code.one_key_head else Block


class _Run:
    """One forward and backward pass with one layer of each kind."""

    def __init__(self, tape: Tape, model: Model, recipe: Recipe, layers: list[Layer]) -> None:
        self.tape = tape
        self.model = model
        self.recipe = recipe
        self.layers = layers
        kind = _code(model, recipe)
        self.blocks = [kind(tape, layer, model, recipe) for layer in layers]
        self.masks: list[Tensor] = []
        self.loss: Tensor | None = None
        self.vocabulary = model.vocab_size * model.hidden_size
        head_trains = recipe.trains or "head" in recipe.saved_modules
        embedding_trains = recipe.trains or "embed" in recipe.saved_modules
        self.embedding = Parameter(self.vocabulary, recipe.norm_bytes, embedding_trains)
        outputs = model.hidden_size if recipe.scores else self.vocabulary
        self.head = Parameter(outputs, recipe.norm_bytes, head_trains or recipe.scores)
        if model.tie_word_embeddings and embedding_trains:
            self.head = self.embedding

    def forward(self) -> None:
        """Embedding, one layer of each kind, tail."""
        tape = self.tape
        tape.forward_segment("embedding")
        x = self._embedded()
        for number, block in enumerate(self.blocks):
            tape.forward_segment(f"layer {number}")
            x = self._run_block(block, x)
        tape.forward_segment("tail")
        x = self._last_norm(x)
        self.loss = self._head_and_loss(x)
        del x
        for number, block in enumerate(self.blocks):
            tape.segment(f"layer {number} leaving")
            block.drop_casts()
        tape.segment("leaving")
        tape.end_autocast()
        if self.recipe.checkpointing == "none":
            self.masks.clear()

    def without_gradients(self, *, scored: bool) -> None:
        """Embedding, one layer of each kind and what follows; nothing is dropped out, copies under autocast stay."""
        self.tape.segment("embedding")
        for block in self.blocks:
            block.drops_stream = block.drops_scores = False
        x = self._embedded()
        for block in self.blocks:
            self.tape.segment("layer")
            x = block(x)
        if scored:
            self.tape.segment("tail")
            x = self._last_norm(x)
            self._head_and_loss(x)

    def _embedded(self) -> Tensor:
        tape, model, recipe = self.tape, self.model, self.recipe
        x = op.embedding(tape, self.embedding, model.hidden_size)
        if "embed" in recipe.adapted:
            x = self._embedding_adapted(x)
        if recipe.virtual_tokens:
            x = op.concatenate(tape, self._prompts(), x)
        elif x.node is None and recipe.input_gradients and recipe.checkpointing != "none":
            x = tape.leaf(x, held=True)
        if model.config.get("embedding_multiplier", 1) != 1:
            x = op.scale(tape, x)
        if _learned_positions(self.layers):
            size = model.max_position_embeddings * model.hidden_size
            positions = Parameter(size, recipe.norm_bytes, recipe.trains)
            x = op.add(tape, x, op.embedding(tape, positions, model.hidden_size))
            if norms_embeddings(model):
                weight = Parameter(model.hidden_size, recipe.norm_bytes, recipe.trains)
                x = op.layer_norm(tape, op.add(tape, x, x), weight)
            x = op.dropout(tape, x, active=self.blocks[0].drops_stream)
        if recipe.attention == "eager":
            kinds = {layer.attention.kind for layer in self.layers if layer.attention is not None}
            self.masks = [tape.new(op.pairs(1), x.element_bytes) for _ in kinds]
        return x

    def _embedding_adapted(self, x: Tensor) -> Tensor:
        """peft.tuners.lora.layer.Embedding.forward."""
        tape, recipe, model = self.tape, self.recipe, self.model
        kept, width = x.element_bytes, recipe.adapter_bytes
        a = Parameter(recipe.rank * model.vocab_size, width, trains=True)
        b = Parameter(recipe.rank * model.hidden_size, width, trains=True)
        low = op.linear(tape, op.embedding(tape, a, recipe.rank), b, per_token(model.hidden_size))
        return op.cast(tape, op.add(tape, x, op.scale(tape, low)), kept)

    def _prompts(self) -> Tensor:
        """Embeddings of virtual tokens, which train."""
        tape, elements = self.tape, self.recipe.virtual_tokens * self.model.hidden_size
        table = Parameter(elements, self.recipe.adapter_bytes, trains=True)
        node = tape.node([table], [Out(gradient(elements * table.element_bytes))])
        rows = tape.new(constant(elements), table.element_bytes, node)
        return op.cast(tape, rows, self.recipe.norm_bytes)

    def _run_block(self, block: Block, x: Tensor) -> Tensor:
        if self.recipe.checkpointing == "none":
            return block(x)
        return self.tape.checkpoint(block, x, reentrant=self.recipe.checkpointing == "reentrant")

    def _last_norm(self, x: Tensor) -> Tensor:
        recipe = self.recipe
        if not norms_output(self.model):
            return x
        weight = Parameter(self.model.hidden_size, recipe.norm_bytes, recipe.trains)
        kind = norm_kind(self.layers[-1], self.model)
        return normalised(self.tape, x, weight, kind=kind, fused=recipe.norm == "fused")

    def _head_and_loss(self, h: Tensor) -> Tensor:
        tape = self.tape
        if self.recipe.scores:
            return _loss(tape, op.linear(tape, h, self.head, per_token(1)), (0, 0, 0, 2))
        if self.recipe.fused_loss and "head" not in self.recipe.adapted:
            return _fused_loss(tape, h, self.head, self.model.vocab_size, compiled=self.recipe.compiled_chunks)
        logits = self._logits(h)
        if any(self.model.config.get(key, 1) not in (1, 1.0, None) for key in ("logits_scaling", "logit_scale")):
            logits = op.scale(tape, logits)
        if self.model.config.get("final_logit_softcapping"):
            logits = op.scale(tape, logits)
            logits = op.from_result(tape, logits)
            logits = op.scale(tape, logits)
        return _loss(tape, logits, self.recipe.loss)

    def _logits(self, h: Tensor) -> Tensor:
        """The head: plain, quantized, or with an adapter of its own."""
        tape, recipe, vocabulary = self.tape, self.recipe, per_logit_token(self.model.vocab_size)
        if recipe.four_bit and recipe.quantized_head:
            logits = op.dequantized(
                tape, h, vocabulary, elements=self.vocabulary, scales=0, keeps_input=recipe.keeps_inputs,
                copies=recipe.four_bit_copies,
            )  # fmt: skip
        else:
            logits = op.linear(tape, h, self.head, vocabulary)
        if "head" not in recipe.adapted:
            return logits
        width = recipe.adapter_bytes
        if recipe.scales:
            scale = Parameter(self.model.vocab_size, width, trains=True)
            return op.cast(tape, op.weighted(tape, logits, scale), logits.element_bytes)
        a = Parameter(recipe.rank * self.model.hidden_size, width, trains=True)
        b = Parameter(recipe.rank * self.model.vocab_size, width, trains=True)
        x = op.dropout(tape, op.cast(tape, h, width), active=recipe.dropout)
        low = op.scale(tape, op.linear(tape, op.linear(tape, x, a, per_token(recipe.rank)), b, vocabulary))
        return op.cast(tape, op.add(tape, logits, low), logits.element_bytes)

    def backward(self) -> None:
        """The engine over the whole graph; a segment begins with its first node."""
        if self.loss is None:
            raise ValueError("forward comes first")
        loss, self.loss = self.loss, None
        self.tape.segment("tail backward")
        self.tape.backward(loss, constant(4))


def _loss(tape: Tape, logits: Tensor, path: tuple[float, float, float, int]) -> Tensor:
    """Logits to loss by the bytes per logit of a code path: end of forward, kept, start of backward, gradient."""
    forward, kept, backward, flowing = path
    vocabulary = logits.elements
    if tape.no_grad:
        scratch = tape.new(scaled(vocabulary, max(0, forward - logits.element_bytes)), 1)
        del scratch
        return tape.new(constant(1), 4)
    cast = tape.node([logits], [Out(logits.form) if flowing > logits.element_bytes else PASS])
    wide = Tensor(logits.storage, vocabulary, logits.element_bytes, cast)
    node = tape.node([wide], [Out(times(vocabulary, flowing))])
    if node is not None:
        node.workspace = scaled(vocabulary, max(0, backward - kept - flowing))
    width = logits.element_bytes
    if forward < kept + width:
        # the logits themselves are among what is kept
        tape.save(node, logits.storage)
        kept -= width
    tape.save(node, tape.new(scaled(vocabulary, kept), 1).storage)
    scratch = tape.new(scaled(vocabulary, max(0, forward - kept - width)), 1)
    del scratch
    return tape.new(constant(1), 4, node)


def _fused_loss(tape: Tape, h: Tensor, head: Parameter, vocabulary: int, *, compiled: bool) -> Tensor:
    """Head and loss in one kernel: gradients of input and head are made in forward, logits in chunks."""
    made = tape.node([h, head], [PASS, PASS])
    direction = Tensor(h.storage, h.elements, h.element_bytes, made)
    node = tape.node([direction], [Out(h.form)])
    tape.save(node, tape.new(h.elements, h.element_bytes).storage)
    if head.trains:
        tape.save(node, Storage(tape, gradient(head.elements * head.element_bytes)))
    # compiled, the gradient is written over the logits (buffer reuse in torch/_inductor)
    wide = min(head.element_bytes, tape.autocast or 4) if compiled else h.element_bytes + 4
    scratch = tape.new(per_logit_token(vocabulary), wide)
    of_head = tape.new(constant(head.elements), head.element_bytes) if compiled and head.trains else None
    del scratch, of_head
    return tape.new(constant(1), 4, node)
