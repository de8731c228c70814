"""Merging of adapters and saving: what is gathered on the GPU for it, and what the saving rank holds on the host."""

from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.settings import FSDP, ZERO, Settings
from tonnage.estimate.training.sharding import Sizes
from tonnage.estimate.training.step import Moment, moment
from tonnage.laws import adapters, host_offload
from tonnage.laws import training_sharding as sharding
from tonnage.spec.model import Model
from tonnage.units import BILLION

LARGEST_FILE = 5 * BILLION
"""max_shard_size of save_pretrained before Transformers 5. [bytes]"""
LARGEST_FILE_NOW = 50 * BILLION
"""
The same since.

Source: huggingface/transformers@v5.24.0 src/transformers/modeling_utils.py save_pretrained
"""


def export(job: Settings, model: Model, sizes: Sizes) -> Moment:
    """
    The most that saving gathers on a GPU beside what is resident.

    Args:
        job: The job.
        model: Architecture.
        sizes: Its part on this rank, uncut.

    Returns:
        FSDP1: the root unit and a block as they are stored; FSDP2 and ZeRO-3: one tensor at a time.
    """
    gathered, name = _gathered(job, model, sizes)
    return moment("export", name, live=gathered)


def _gathered(job: Settings, model: Model, sizes: Sizes) -> tuple[int, str]:
    """
    What is whole on every rank at a time.

    Source:
        pytorch/pytorch@v2.13.0 torch/distributed/fsdp/_state_dict_utils.py _full_pre_state_dict_hook (a unit stays whole while
        its children are saved), torch/distributed/_state_dict_utils.py _iterate_state_dict (full tensors one by one);
        deepspeedai/DeepSpeed@v0.18.2 deepspeed/runtime/engine.py _zero3_consolidated_16bit_state_dict
    """
    if not gathers(job):
        return 0, "tensors as they are"
    width = _stored_width(job)
    if job.sharding in FSDP and job.release.fsdp != "fsdp2":
        root = sharding.gathered_unit(parameters=sizes.tables * sizes.vocabulary, element_bytes=width)
        block = sizes.block_gathered * width // min(job.compute_bytes, width)
        return root + (sizes.block_gathered if job.quantized else block), "root unit and a block, whole"
    largest = largest_tensor(model, job.libraries.experts_are_linears) // job.tensor_parallel_size
    return sharding.gathered_unit(parameters=largest, element_bytes=width), "largest tensor, whole"


def gathers(job: Settings) -> bool:
    """Whether shards are put together for saving: DCP and Megatron write them as they are."""
    stated = job.card.export.state_dict_type if job.card.export is not None else None
    if stated is None:
        stated = "sharded" if job.release.code in ("torchtitan", "megatron") else "full"
    return stated == "full" and (job.sharding in FSDP or job.sharding == "zero3")


def _stored_width(job: Settings) -> int:
    """Width that shards are stored in: ZeRO-3's are of 16 bit, FSDP's as they train. [bytes]"""
    return min(2, job.weight_bytes) if job.sharding == "zero3" else job.weight_bytes


@per_model()
def largest_tensor(model: Model, experts_are_linears: bool) -> int:
    """Elements of the largest tensor; experts stacked in one unless each is a linear. [elements]"""
    inside = (t for group in model.layers for t in group.layer.tensors)
    return max(
        (t.out_features * t.in_features * (1 if experts_are_linears else t.experts) for t in (*inside, *model.outside)),
        default=0,
    )


def merge(job: Settings) -> Moment:
    """merge_and_unload, one linear at a time."""
    linears = [a for a in job.adapters if a.role not in ("embed",)]
    largest = max((a.in_features * a.out_features for a in linears), default=0)
    product = adapters.merged(
        elements=largest, adapter_bytes=job.adapter_bytes, quantized=job.quantized, magnitudes=job.method == "dora"
    )
    return moment("merge", "product of one adapter", scratch=product)


def saved_on_host(job: Settings, *, weights: int, states: int) -> int:
    """
    What the rank that saves has on the host at the end of it.

    Args:
        job: The job.
        weights: Weights and adapters of the whole model. [bytes]
        states: Its optimizer states. [bytes]

    Returns:
        Size; nothing where each rank writes its shard from the GPU. [bytes]
    """
    asked = job.card.export
    if asked is None or (job.sharding in FSDP and not gathers(job)):
        return 0
    on_host = gathers(job) or job.sharding in ZERO
    file = LARGEST_FILE_NOW if job.libraries.at_least("transformers", "5.0") else LARGEST_FILE
    saved = host_offload.state_dict(whole=weights, on_host=on_host, largest_file=file)
    return saved + (states if asked.optimizer and gathers(job) and job.sharding in FSDP else 0)
