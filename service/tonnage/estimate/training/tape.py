"""
Eager autograd without data: which bytes live when, operator by operator.

A tape runs code written like a model's own forward pass on tensors that have a size and nothing else. As in
PyTorch, a tensor's memory lives as long as something refers to it: a local variable, a node that saved it for
backward, or the engine's input buffer; CPython's reference counts decide, here as there. What comes out is, for each
segment of a step, the change of allocated memory and its highest points, as linear forms in the batch's measures, so
that one run of the tape answers every batch size and length.

Source:
    pytorch/pytorch@v2.8.0 torch/csrc/autograd/engine.cpp (order by sequence number, inputs released after the node,
    saved variables after its outputs exist), input_buffer.cpp (sums in place), torch/utils/checkpoint.py
    (_CheckpointFrame: recomputed on first unpack, stops after the last saved tensor), torch/amp/autocast_mode.py
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

Form: TypeAlias = tuple[int, int, int, int, int, int]
"""
Bytes (or elements) as factors of: one, tokens of the batch, tokens x length, tokens with the length padded to 128,
gradients of weights, tokens whose logits exist at once.
"""

ZERO: Form = (0, 0, 0, 0, 0, 0)


def constant(amount: int) -> Form:
    """Bytes that no batch changes."""
    return (amount, 0, 0, 0, 0, 0)


def per_token(amount: int) -> Form:
    """Bytes for each token of the batch."""
    return (0, amount, 0, 0, 0, 0)


def per_pair(amount: int) -> Form:
    """Bytes for each query and key of a sequence (batch x length x length)."""
    return (0, 0, amount, 0, 0, 0)


def gradient(amount: int) -> Form:
    """Bytes of a weight's gradient."""
    return (0, 0, 0, 0, amount, 0)


def per_logit_token(amount: int) -> Form:
    """Bytes for each token that is scored at once: all of them, or those of one chunk."""
    return (0, 0, 0, 0, 0, amount)


def plus(a: Form, b: Form) -> Form:
    """Sum of two forms."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


def times(a: Form, factor: int) -> Form:
    """A form a whole number of times."""
    return (a[0] * factor, a[1] * factor, a[2] * factor, a[3] * factor, a[4] * factor, a[5] * factor)


def scaled(a: Form, factor: float) -> Form:
    """A form by a fraction, whole again."""
    return (
        round(a[0] * factor), round(a[1] * factor), round(a[2] * factor),
        round(a[3] * factor), round(a[4] * factor), round(a[5] * factor),
    )  # fmt: skip


def value(form: Form, measures: Form) -> int:
    """A form at a batch. [bytes]"""
    return (
        form[0] * measures[0]
        + form[1] * measures[1]
        + form[2] * measures[2]
        + form[3] * measures[3]
        + form[4] * measures[4]
        + form[5] * measures[5]
    )


def undominated(points: Iterable[Form]) -> tuple[Form, ...]:
    """Points that are the highest for some batch, as far as comparing them in pairs can tell."""
    kept: list[Form] = []
    for point in sorted(set(points), reverse=True):  # so that none is dominated by one after it
        for other in kept:
            if _dominates(other, point):
                break
        else:
            kept.append(point)
    return tuple(kept)


def _dominates(a: Form, b: Form) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a[2] >= b[2] and a[3] >= b[3] and a[4] >= b[4] and a[5] >= b[5]


class Segment:
    """Part of a step: how memory changes over it, and its highest points above where it began."""

    __slots__ = ("_points", "_rising", "name", "net")

    def __init__(self, name: str) -> None:
        self.name = name
        self.net: Form = ZERO
        self._points: set[Form] = {ZERO}
        self._rising = False

    @property
    def points(self) -> set[Form]:
        """Levels before memory shrinks, and the last one."""
        return self._points | {self.net} if self._rising else self._points

    def grow(self, form: Form) -> None:
        """Memory is allocated; a negative form (a loss that keeps less than its logits) takes some back."""
        net = self.net
        if self._rising and min(form) < 0:
            self._points.add(net)
        self.net = (
            net[0] + form[0], net[1] + form[1], net[2] + form[2], net[3] + form[3], net[4] + form[4], net[5] + form[5],
        )  # fmt: skip
        self._rising = True

    def shrink(self, form: Form) -> None:
        """Memory is freed."""
        net = self.net
        if self._rising:
            self._points.add(net)
            self._rising = False
        self.net = (
            net[0] - form[0], net[1] - form[1], net[2] - form[2], net[3] - form[3], net[4] - form[4], net[5] - form[5],
        )  # fmt: skip


class Storage:
    """Memory of one tensor; freed when nothing refers to it any more."""

    __slots__ = ("form", "tape")

    def __init__(self, tape: "Tape", form: Form) -> None:
        self.tape = tape
        self.form = form
        tape.current.grow(form)

    def __del__(self) -> None:
        self.tape.current.shrink(self.form)


class Parameter:
    """A weight: resident elsewhere, so it has a size but no storage; its gradient appears on the tape."""

    __slots__ = ("cast", "element_bytes", "elements", "grad", "trains")

    def __init__(self, elements: int, element_bytes: int, trains: bool) -> None:
        self.elements = elements
        self.element_bytes = element_bytes
        self.trains = trains
        self.grad: Storage | None = None
        self.cast: Tensor | None = None

    @property
    def node(self) -> "Parameter | None":
        """Where a gradient for it goes."""
        return self if self.trains else None


Saved: TypeAlias = Storage | None
"""What a node keeps for backward; None for a parameter, which lives anyway but is unpacked all the same."""


class Node:
    """One step of the backward pass."""

    __slots__ = ("collects", "frame", "inputs", "outputs", "saved", "sequence", "slots", "workspace")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.collects = False
        """Gradients of several outputs wait side by side (split) instead of being summed in place."""
        self.inputs: Sequence[Node | Parameter | None] = ()
        self.outputs: Sequence[Out] = ()
        self.saved: list[Saved] = []
        self.workspace: Form = ZERO
        self.frame: Frame | None = None
        self.slots: list[int] = []


class Out:
    """Gradient a node makes for one input: as computed, as summed to the input's shape; None passes the node's own on."""

    __slots__ = ("computed", "summed")

    def __init__(self, computed: Form | None, summed: Form | None = None) -> None:
        self.computed = computed
        self.summed = summed


PASS = Out(None)


class Tensor:
    """Elements of one width, their storage and the node that made them."""

    __slots__ = ("element_bytes", "elements", "node", "storage")

    def __init__(self, storage: Storage, elements: Form, element_bytes: int, node: Node | None) -> None:
        self.storage = storage
        self.elements = elements
        self.element_bytes = element_bytes
        self.node = node

    @property
    def form(self) -> Form:
        """Size of the tensor, which may be a view of a larger storage. [bytes]"""
        return times(self.elements, self.element_bytes)

    @property
    def requires_grad(self) -> bool:
        """Whether backward reaches it."""
        return self.node is not None


class StopRecomputing(Exception):
    """The last tensor that backward needs is there."""


class Frame:
    """One checkpointed call: its input, how to run it again, and what was recomputed."""

    __slots__ = ("again", "expected", "recomputed", "replayed", "source")

    def __init__(self, again: Callable[[Tensor], Tensor], source: Tensor) -> None:
        self.again = again
        self.source = Tensor(source.storage, source.elements, source.element_bytes, None)
        self.expected = 0
        """Tensors the call saves; REENTRANT: the call is run and differentiated as a whole."""
        self.recomputed: list[Saved] = []
        self.replayed = False


REENTRANT = -1


class Tape:
    """A run of forward and backward code; `autocast` is the width it computes in, 0 without autocast."""

    def __init__(self, *, autocast: int = 0, accumulates: bool = False) -> None:
        self.autocast = autocast
        self.accumulates = accumulates
        """Gradients of an earlier micro-batch are there, so new ones are added and freed."""
        self.segments: list[Segment] = []
        self.current = Segment("")
        self.sequence = 0
        self.recording: Frame | None = None
        self.replaying: Frame | None = None
        self.no_grad = False
        self.casts: list[Parameter] = []
        self.starts: list[int] = []
        """Sequence number at which each segment of forward begins."""

    # ---- accounting ----

    def segment(self, name: str) -> None:
        """Begin a part of the step."""
        self.current = Segment(name)
        self.segments.append(self.current)

    def forward_segment(self, name: str) -> None:
        """Begin a part of forward, which backward passes through again."""
        self.starts.append(self.sequence)
        self.segment(name)

    def _enter(self, node: Node) -> None:
        """Backward reaches a node of another part: a new segment."""
        name = self.segments[bisect_left(self.starts, node.sequence) - 1].name + " backward"
        if self.current.name != name:
            self.segment(name)

    # ---- tensors and nodes ----

    def new(self, elements: Form, element_bytes: int, node: Node | None = None) -> Tensor:
        """A freshly allocated tensor."""
        return Tensor(Storage(self, times(elements, element_bytes)), elements, element_bytes, node)

    def node(self, inputs: Sequence["Tensor | Parameter | None"], outputs: Sequence[Out]) -> Node | None:
        """The backward step of an operator; None when no input requires grad."""
        if self.no_grad:
            return None
        edges = [None if source is None else source.node for source in inputs]
        if not any(edges):
            return None
        self.sequence += 1
        node = Node(self.sequence)
        node.inputs, node.outputs = edges, outputs
        return node

    def save(self, node: Node | None, *saved: Saved) -> None:
        """Keep storages for backward, or remember only that they will be needed."""
        if node is None:
            return
        if self.replaying is not None:
            _recompute(self.replaying, saved)
        elif self.recording is not None:
            node.frame = self.recording
            for _ in saved:
                node.slots.append(self.recording.expected)
                self.recording.expected += 1
        else:
            node.saved.extend(saved)

    # ---- checkpointing ----

    def checkpoint(self, function: Callable[[Tensor], Tensor], source: Tensor, *, reentrant: bool) -> Tensor:
        """torch.utils.checkpoint of a function of one tensor."""
        if reentrant:
            return self._reentrant(function, source)
        frame = Frame(function, source)
        self.recording = frame
        try:
            return function(source)
        finally:
            self.recording = None

    def _reentrant(self, function: Callable[[Tensor], Tensor], source: Tensor) -> Tensor:
        self.no_grad = True
        try:
            result = function(source)
        finally:
            self.no_grad = False
        node = self.node([source], [Out(ZERO)])
        if node is not None:
            node.frame = Frame(function, source)
            node.frame.expected = REENTRANT
        result.node = node
        return result

    # ---- backward ----

    def backward(self, root: Tensor, gradient_form: Form) -> None:
        """The engine: nodes whose gradients are complete, the latest first."""
        self._run(made_by(root), Storage(self, gradient_form), outermost=True)

    def _run(self, root: Node, grad: Storage, *, outermost: bool = False) -> Storage | None:
        waiting = _dependencies(root)
        buffers: dict[Node, list[Storage]] = {root: [grad]}
        del grad
        ready: list[tuple[int, Node]] = []
        heappush(ready, (-root.sequence, root))
        last: Storage | None = None
        while ready:
            _, node = heappop(ready)
            if outermost:
                self._enter(node)
            grads = self._call(node, buffers.pop(node))
            node.saved.clear()
            node.frame = None
            for edge, flowing in zip(node.inputs, grads, strict=True):
                if edge is None or flowing is None:
                    continue
                if isinstance(edge, Parameter):
                    self._accumulate(edge, flowing)
                elif edge in waiting:
                    buffer = buffers.setdefault(edge, [])
                    if edge.collects or not buffer:
                        buffer.append(flowing)
                    del buffer
                    waiting[edge] -= 1
                    if not waiting[edge]:
                        heappush(ready, (-edge.sequence, edge))
                else:
                    last = flowing
            del grads, flowing
        return last

    def _accumulate(self, parameter: Parameter, flowing: Storage) -> None:
        if self.accumulates or parameter.grad is not None:
            return
        parameter.grad = flowing

    def _call(self, node: Node, grads: list[Storage]) -> list[Storage | None]:
        frame = node.frame
        if frame is not None and frame.expected == REENTRANT:
            return [self._backward_of_call(frame, grads[0])]
        held = self._unpack(node)
        scratch = Storage(self, node.workspace) if node.workspace != ZERO else None
        made = [
            None if edge is None else grads[0] if out.computed is None else Storage(self, out.computed)
            for edge, out in zip(node.inputs, node.outputs, strict=True)
        ]
        del scratch
        for position, out in enumerate(node.outputs):
            if out.summed is not None and made[position] is not None:
                made[position] = Storage(self, out.summed)
        del held
        return made

    def _unpack(self, node: Node) -> list[Saved]:
        frame = node.frame
        if frame is None or not node.slots:
            return node.saved
        if not frame.replayed:
            self._replay(frame)
        held = [frame.recomputed[slot] for slot in node.slots]
        for slot in node.slots:
            frame.recomputed[slot] = None
        return held

    def _replay(self, frame: Frame) -> None:
        frame.replayed = True
        outer, self.replaying = self.replaying, frame
        try:
            frame.again(self.leaf(frame.source))
        except StopRecomputing:
            pass
        finally:
            self.replaying = outer
            self.end_autocast()

    def _backward_of_call(self, frame: Frame, grad: Storage) -> Storage | None:
        """Reentrant checkpointing: the whole call again, then a backward pass of its own."""
        result = frame.again(self.leaf(frame.source))
        self.end_autocast()
        return self._run(made_by(result), grad)

    def leaf(self, source: Tensor, *, held: bool = False) -> Tensor:
        """The same tensor, where backward stops; `held`: a gradient is asked for, so the graph keeps it."""
        self.sequence += 1
        node = Node(self.sequence)
        if held:
            node.saved.append(source.storage)
        return Tensor(source.storage, source.elements, source.element_bytes, node)

    # ---- autocast ----

    def end_autocast(self) -> None:
        """Leaving the autocast region drops the cached copies of weights."""
        for parameter in self.casts:
            parameter.cast = None
        self.casts.clear()


def made_by(tensor: Tensor) -> Node:
    """The node behind a tensor that backward starts from."""
    if tensor.node is None:
        raise ValueError("nothing that this depends on trains")
    return tensor.node


def _recompute(frame: Frame, saved: Sequence[Saved]) -> None:
    for storage in saved:
        frame.recomputed.append(storage)
        if len(frame.recomputed) == frame.expected:
            raise StopRecomputing


def _dependencies(root: Node) -> dict[Node, int]:
    """How many gradients each node waits for; leaves of the graph that nothing stands behind are no nodes to run."""
    counts: dict[Node, int] = {}
    todo = [root]
    seen = {root}
    while todo:
        for edge in todo.pop().inputs:
            if isinstance(edge, Node) and (edge.inputs or edge.frame is not None):
                counts[edge] = counts.get(edge, 0) + 1
                if edge not in seen:
                    seen.add(edge)
                    todo.append(edge)
    return counts
