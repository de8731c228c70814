"""
The vision tower of a fine-tuned model: its layers on the tape, measured in patches, before and after the decoder's.

Its forward pass comes first, so what it keeps lies beneath the whole step of the decoder; its backward pass comes after
the decoder's, when that one's activations are gone and its gradients are there.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/{clip,siglip,qwen2_vl,qwen2_5_vl,llava}/modeling_*.py; recorded:
    tests/oracles/tower_runs.json
"""

from typing import NamedTuple

from msgspec.structs import replace

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.eager import Block
from tonnage.estimate.training.norms import normalised
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.sharding import Held, Sizes
from tonnage.estimate.training.states import leads_to_decoder, part_of
from tonnage.estimate.training.step import Moment, moment
from tonnage.estimate.training.tape import (
    ZERO,
    Form,
    Out,
    Parameter,
    Storage,
    Tape,
    Tensor,
    per_token,
    plus,
    times,
    undominated,
    value,
)
from tonnage.laws import vision_encoder
from tonnage.spec.model import Attention, Layer, Model, Vision

PIXEL = 4
"""Processors give pixels in fp32. [bytes]"""


_WINDOWED = frozenset({"window_size", "fullatt_block_indexes"})
"""Keys of towers that put patches in the order of their windows."""
_PARTS = frozenset({"vision", "projector"})


class Course(NamedTuple):
    """A tower's part of a step, above what is resident, as forms in its patches."""

    forward: tuple[Form, ...]
    kept: Form
    """Until its own backward pass."""
    returned: Form
    """Features and last states, until the end of forward."""
    backward: tuple[Form, ...]


class Patches(NamedTuple):
    """Measures of the images of a micro-batch."""

    number: int
    """All of them. [unitless]"""
    each: int
    """Of one image. [unitless]"""

    @property
    def measures(self) -> Form:
        """As factors of a form."""
        images = self.number // max(1, self.each)
        padded = -(-self.each // 128) * 128 * images
        return (1, self.number, self.number * self.each, padded, 1, self.number)


def patches_of(job: Settings, model: Model) -> Patches | None:
    """
    Patches of a micro-batch's images; None where there are none.

    A tower of learned positions takes images of its own size; one that rotates takes theirs, in whole merged patches.
    Where that size is not stated the images are taken to fill the sequence.
    """
    images, vision = job.card.images, model.vision
    if images is None or vision is None or vision.layer is None or not vision.patch_size:
        return None
    number = images.per_sample * job.micro_batch_size
    if _fixed(vision):
        side = vision.image_size // vision.patch_size
        each = side * side + (1 if _has_class(model) else 0)
    elif images.height and images.width:
        each = vision_encoder.patches(
            height=images.height,
            width=images.width,
            patch_size=vision.patch_size,
            spatial_merge_size=vision.spatial_merge_size,
        )
    else:
        each = job.sequence_length // images.per_sample * vision.spatial_merge_size**2
    return Patches(number * each, each)


def open_images(job: Settings, model: Model) -> tuple[str, ...]:
    """What is not known of a model's images."""
    vision, images = model.vision, job.card.images
    if vision is None:
        return ()
    if images is None or vision.layer is None:
        return (
            "activations of the vision tower: state training.images; tokens of images count as part of sequence_length",
        )
    if not _fixed(vision) and not (images.height and images.width):
        return ("the size of images: they are taken to fill the sequence; state training.images.height and width",)
    return ()


def _fixed(vision: Vision) -> bool:
    layer = vision.layer
    return (
        layer is not None
        and layer.attention is not None
        and layer.attention.rotary == "learned"
        and vision.image_size > 0
    )


def _has_class(model: Model) -> bool:
    return any(t.component == "vision" and t.name.endswith("class_embedding") for t in model.outside)


def with_tower(
    job: Settings, model: Model, recipe: Recipe, moments: tuple[Moment, Moment], *, holds: Held, sizes: Sizes
) -> tuple[Moment, Moment]:
    """
    The highest points of forward and backward with a tower beneath.

    Args:
        job: The job.
        model: Architecture.
        recipe: What decides the tensors of the decoder's step.
        moments: The decoder's highest points.
        holds: What the rank holds.
        sizes: The model part of the rank.

    Returns:
        The decoder's points with what the tower keeps, or the tower's own.
    """
    patches = patches_of(job, model)
    if patches is None:
        return moments
    found, measures = course(model, tower_recipe(job, recipe)), patches.measures
    pixels = patches.number * _pixels(model) * PIXEL
    kept = pixels + value(found.kept, measures)
    forward, backward = moments
    stream = recipe.norm_bytes * model.hidden_size * job.tokens
    if not recipe.trains and recipe.checkpointing != "none":
        kept += stream  # the text's own embeddings, which a gradient is asked for, beside those with features put in
    first = max(value(point, measures) for point in found.forward)
    own = moment(
        "forward", "vision tower, forward", gradients=holds.gradients_before, vision=pixels + first, activations=stream
    )
    forward = max(_beneath(forward, kept + value(found.returned, measures)), own, key=_total)
    backward = _beneath(backward, kept)
    if found.backward:
        last = max(value(point, measures) for point in found.backward)
        done = holds.gradients_before + int(holds.gradients_done * _decoder_gradients(job, model, sizes))
        own = moment(
            "backward",
            "vision tower, backward",
            gradients=done,
            vision=pixels + last,
            activations=stream,
            live=holds.live_backward,
            buckets=holds.buckets,
        )
        backward = max(backward, own, key=_total)
    return forward, backward


def _beneath(found: Moment, kept: int) -> Moment:
    return found._replace(vision=kept, total=found.total + kept)


def _total(found: Moment) -> int:
    return found.total


def _decoder_gradients(job: Settings, model: Model, sizes: Sizes) -> int:
    """Gradients that are there when backward reaches the tower: of head and layers, not yet of the embedding. [bytes]"""
    if not job.trains_base:
        return sizes.gradients
    width = sizes.gradients // max(1, sizes.trainable)
    later = sizes.vocabulary if not model.tie_word_embeddings else 0
    return sizes.gradients - width * (later + _tower_parameters(model, job.frozen_parts))


@per_model()
def _tower_parameters(model: Model, frozen: frozenset[str]) -> int:
    return sum(t.elements for t in model.outside if (part := part_of(t)) in _PARTS and part not in frozen)


@per_model()
def _pixels(model: Model) -> int:
    """Numbers of one patch. [elements]"""
    found = next(
        (t for t in model.outside if t.role == "patch" and t.component == "vision" and t.in_features > 1), None
    )
    return found.in_features if found is not None else 0


def tower_recipe(job: Settings, recipe: Recipe) -> Recipe:
    """The decoder's recipe as far as it holds for a tower: no adapters, no masks, whole images."""
    return replace(
        recipe,
        trains=job.trains_base and "vision" not in job.frozen_parts,
        adapted=frozenset(),
        saved_modules=frozenset()
        if not job.trains_base or "projector" in job.frozen_parts
        else frozenset({"projector"}),
        attention="flash" if recipe.attention != "eager" else "eager",
        masks_windows=False,
        single=False,
        norm="python",
        fused_gate=False,
        four_bit=recipe.four_bit,
        virtual_tokens=0,
        code="transformers",
        # enable_input_require_grads asks for them at the embeddings of every part (modeling_utils.py)
        input_gradients=job.libraries.at_least("transformers", "5.0"),
    )


@per_model()
def course(model: Model, recipe: Recipe) -> Course:
    """
    A tower's part of a step.

    Args:
        model: Architecture with a vision tower.
        recipe: As `tower_recipe` makes it.

    Returns:
        Highest points and what stays, as forms in patches.
    """
    vision = model.vision
    if vision is None or vision.layer is None:
        raise ValueError("patches_of comes first")
    run = _Run(model, vision, vision.layer, recipe)
    run.forward()
    return run.course()


class _Run:
    """Patch embedding, one layer, what follows the last, and back."""

    def __init__(self, model: Model, vision: Vision, layer: Layer, recipe: Recipe) -> None:
        self.tape = Tape(autocast=recipe.autocast, accumulates=recipe.accumulates)
        self.model, self.vision, self.recipe = model, vision, recipe
        inner = replace(model, hidden_size=vision.hidden_size, config={}, layers=())
        self.block = TowerBlock(self.tape, layer, inner, recipe)
        self.layers = vision.num_hidden_layers
        self.features: Tensor | None = None
        self.states: Tensor | None = None

    def forward(self) -> None:
        tape, recipe, hidden = self.tape, self.recipe, self.vision.hidden_size
        tape.forward_segment("embedding")
        pixels = tape.new(per_token(_pixels(self.model)), recipe.weight_bytes)
        weight = Parameter(_pixels(self.model) * hidden, recipe.weight_bytes, recipe.trains)
        x = op.linear(tape, pixels, weight, per_token(hidden))
        del pixels
        if x.node is None and self._checkpointed and recipe.input_gradients:
            x = tape.leaf(x, held=True)
        if not _WINDOWED.isdisjoint(self.vision.config):
            x = op.gather(tape, x, x.elements, index_bytes=0)
        if self.block.learned:
            x = op.add(tape, x, x)
        if self._has_norm("pre_"):
            x = op.layer_norm(tape, x, Parameter(hidden, recipe.norm_bytes, recipe.trains))
        tape.forward_segment("layer")
        x = tape.checkpoint(self.block, x, reentrant=False) if self._checkpointed else self.block(x)
        self.block.drop_casts()
        tape.forward_segment("tail")
        if self._has_norm("post_") and not self.vision.unread_layers:
            x = op.layer_norm(tape, x, Parameter(hidden, recipe.norm_bytes, recipe.trains))
        self.states = x
        self.features = self._projected(x)
        tape.end_autocast()

    def _has_norm(self, name: str) -> bool:
        """A norm before the first layer or after the last."""
        return any(t.role == "norm" and name in t.name and t.component == "vision" for t in self.model.outside)

    @property
    def _checkpointed(self) -> bool:
        return self.recipe.checkpointing != "none"

    def _projected(self, x: Tensor) -> Tensor:
        """What leads to the decoder: patches merged or pooled, a norm, linears with an activation between them."""
        tape, recipe, hidden = self.tape, self.recipe, self.vision.hidden_size
        trains = recipe.trains or "projector" in recipe.saved_modules
        x, fewer = self._pooled(x)
        tensors = [t for t in self.model.outside if leads_to_decoder(t)]
        matrices = [t for t in tensors if t.role == "projector" and t.in_features > 1]
        if any(t.role == "norm" for t in tensors):
            x = normalised(
                tape, x, Parameter(hidden, recipe.norm_bytes, trains), kind=self.block.norm_kind, fused=False
            )
        for place, matrix in enumerate(matrices):
            if place:
                x = op.activation(tape, x)
            weight = Parameter(matrix.out_features * matrix.in_features, recipe.weight_bytes, trains)
            # some are stored the other way round
            width = matrix.in_features if matrix.out_features == hidden and not place else matrix.out_features
            x = op.linear(tape, x, weight, per_token(width // fewer))
        return x

    def _pooled(self, x: Tensor) -> tuple[Tensor, int]:
        """Patches as they are, merged by a view, or averaged; and how many become one token."""
        merged = self.vision.spatial_merge_size**2
        if merged > 1 or not self.vision.tokens_per_image or not self.vision.image_size:
            return x, merged
        fewer = (self.vision.image_size // self.vision.patch_size) ** 2 // self.vision.tokens_per_image
        if fewer <= 1:
            return x, 1
        tape = self.tape
        x = op.copy(tape, x)
        node = tape.node([x], [Out(x.form)])
        tape.save(node, x.storage)
        return tape.new(per_token(self.vision.hidden_size // fewer), x.element_bytes, node), fewer

    def course(self) -> Course:
        """Points of both passes, with as many layers as there are."""
        tape, unread = self.tape, self.vision.unread_layers
        embedding, layer, tail = tape.segments
        level = embedding.net
        forward = [*embedding.points]
        forward += [plus(plus(level, times(layer.net, self.layers - 1)), point) for point in layer.points]
        level = plus(level, times(layer.net, self.layers))
        forward += [plus(level, point) for point in tail.points]
        level = plus(level, tail.net)
        features = self.features
        assert features is not None  # noqa: S101  (forward comes first)
        root, form = features.node, features.form
        tape.segment("returned")
        del features
        self.features = self.states = None
        returned = plus(times(tape.current.net, -1), times(layer.net, unread))
        if unread and root is None:  # all states are collected to pick one of them
            returned = plus(returned, times(per_token(2 * self.vision.hidden_size), self.layers))
        kept = plus(level, times(returned, -1))
        if root is None:
            return Course(undominated(forward), ZERO, level, ())
        tape.segment("tail backward")
        tape.backward(Tensor(Storage(tape, ZERO), form, 1, root), form)
        return Course(undominated(forward), kept, returned, self._backward(kept))

    def _backward(self, level: Form) -> tuple[Form, ...]:
        points: list[Form] = []
        for segment in self.tape.segments[4:]:
            times_passed = self.layers - self.vision.unread_layers if segment.name == "layer backward" else 1
            points += [plus(level, point) for point in segment.points]
            before = plus(level, times(segment.net, times_passed - 1))
            points += [plus(before, point) for point in segment.points]
            level = plus(before, segment.net)
        return undominated(points)


class TowerBlock(Block):
    """A layer of a tower: rotation in fp32, a fused projection that is unbound, outputs joined over the images."""

    def __init__(self, tape: Tape, layer: Layer, model: Model, recipe: Recipe) -> None:
        super().__init__(tape, layer, model, recipe)
        attention = layer.attention
        self.learned = attention is not None and attention.rotary == "learned"
        self.rotates_wide = not self.learned
        self.joins = attention is not None and attention.fused_qkv

    def _pieces(self, qkv: Tensor, widths: tuple[int, int, int], attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        del attention
        q, k, v = op.split(self.tape, qkv, *(per_token(width) for width in widths))
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """As the decoder's; a tower that goes image by image joins what comes out."""
        out, weights = super().attend(q, k, v, attention)
        return (op.copy(self.tape, out) if self.joins else out), weights

    def _activated(self, x: Tensor, name: str) -> Tensor:
        if name != "quick_gelu":
            return super()._activated(x, name)
        tape = self.tape
        return op.multiply(tape, x, op.from_result(tape, op.scale(tape, x)))
