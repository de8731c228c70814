"""
What sharded data parallelism holds beside its shards: gathered units, buckets, copies of the step.

Every law is for one rank. Figures of documentation and code disagree for ZeRO-2 (4P + 16P/n against 2P + 18P/n); the code
is believed.
"""

from tonnage.units import BILLION, MILLION, ceil_div

ZERO_BUCKET = 500 * MILLION
"""reduce_bucket_size of DeepSpeed. [elements]"""
PUBLISHED_BUCKET = 200 * MILLION
"""reduce_bucket_size of huggingface/transformers tests/deepspeed/ds_config_zero2.json and of recipes made after it. [elements]"""
ZERO_PREFETCH = 50 * MILLION
"""stage3_prefetch_bucket_size. [elements]"""
ZERO_SUB_GROUP = BILLION
"""sub_group_size. [elements]"""


def shard(*, amount: int, ranks: int) -> int:
    """
    Even part of something sharded.

    Args:
        amount: The whole. [bytes]
        ranks: Ranks that share it. [unitless]

    Returns:
        Part of the fullest rank. [bytes]

    Source:
        arXiv:1910.02054 section 5; pytorch/pytorch@v2.8.0 torch/distributed/fsdp/_fully_shard/_fsdp_param.py
    """
    return ceil_div(amount, ranks)


def zero1_step(*, trainable: int, ranks: int) -> int:
    """
    fp32 copy of gradients and updated weights of the rank's part, while the step runs.

    Args:
        trainable: Trainable parameters. [unitless]
        ranks: Data-parallel ranks. [unitless]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/stage_1_and_2.py step, get_flat_partition
    """
    return 6 * ceil_div(trainable, ranks)


def zero2_step(*, trainable: int, ranks: int) -> int:
    """
    The rank's gradients kept, flat and cast to fp32 together at the step.

    Args:
        trainable: Trainable parameters. [unitless]
        ranks: Data-parallel ranks. [unitless]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/stage_1_and_2.py get_flat_partition, step
    """
    return 8 * ceil_div(trainable, ranks)


def zero_buckets(*, element_bytes: int = 2, overlap: bool = True, bucket: int = ZERO_BUCKET) -> int:
    """
    Contiguous gradient buckets of a backward pass, two of them when reduction overlaps; whole whatever trains.

    Args:
        element_bytes: Width of what is reduced. [bytes]
        overlap: overlap_comm.
        bucket: reduce_bucket_size. [elements]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/stage_1_and_2.py setup_buckets (torch.empty of the whole
        bucket), config.py
    """
    return bucket * element_bytes * (2 if overlap else 1)


def zero3_step(*, trainable: int, ranks: int) -> int:
    """
    One sub-group's flat and fp32 copies at the step.

    Args:
        trainable: Trainable parameters. [unitless]
        ranks: Data-parallel ranks. [unitless]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/stage3.py _optimizer_step, sub_group_size
    """
    return 6 * min(ZERO_SUB_GROUP, ceil_div(trainable, ranks))


def zero3_prefetch(*, hidden_size: int, automatic: bool) -> int:
    """
    Parameters fetched ahead of use.

    Args:
        hidden_size: Width of the model. [elements]
        automatic: Sizes left to the Hugging Face integration: 0.9 x hidden^2 elements.

    Returns:
        Two buckets in 16 bit. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/config.py prefetch_bucket_size;
        huggingface/transformers@v4.57.1 src/transformers/integrations/deepspeed.py (auto values)
    """
    elements = 9 * hidden_size * hidden_size // 10 if automatic else ZERO_PREFETCH
    return 2 * elements


def zero3_reduce_bucket(*, hidden_size: int, automatic: bool) -> int:
    """
    Permanent buffer that gradients are reduced in.

    Args:
        hidden_size: Width of the model. [elements]
        automatic: hidden^2 elements under the Hugging Face integration.

    Returns:
        Size in 16 bit. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/stage3.py setup_zero_stage3_hooks (ipg buffer);
        huggingface/transformers@v4.57.1 src/transformers/integrations/deepspeed.py
    """
    return 2 * (hidden_size * hidden_size if automatic else ZERO_BUCKET)


def gathered_unit(*, parameters: int, element_bytes: int) -> int:
    """
    Parameters of one unit while they are whole on every rank.

    Args:
        parameters: Parameters of the unit. [unitless]
        element_bytes: Width they are gathered in. [bytes]

    Returns:
        Size. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py unshard
    """
    return parameters * element_bytes


def reduced_unit(*, parameters: int, gradient_bytes: int, reduce_bytes: int) -> int:
    """
    Gradients of one unit before they are sharded, and their copy in the dtype of the reduction.

    Args:
        parameters: Trainable parameters of the unit. [unitless]
        gradient_bytes: Width of the gradients. [bytes]
        reduce_bytes: Width of the reduction. [bytes]

    Returns:
        Size while the unit is reduced. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce
    """
    return parameters * (gradient_bytes + reduce_bytes)


def upcast_tables(*, elements: int, tables: int) -> int:
    """
    What tables of 16 bit take beside themselves while each in turn is replaced by its fp32 copy.

    Args:
        elements: Elements of one table. [elements]
        tables: Embedding, and a head that is a tensor of its own. [unitless]

    Returns:
        Size. [bytes]

    Source:
        axolotl-ai-cloud/axolotl@002a637c8 src/axolotl/loaders/model.py _convert_embedding_modules_dtype (float32 before
        prepare_model_for_kbit_training, back to torch_dtype after it)
    """
    return 2 * elements * tables + 2 * elements if tables else 0


def summoned(*, parameters: int, element_bytes: int, ranks: int) -> int:
    """
    The whole model and its shard: loading through `summon_full_params`, moving before wrapping.

    Args:
        parameters: Parameters. [unitless]
        element_bytes: Width. [bytes]
        ranks: Ranks that shard it. [unitless]

    Returns:
        Size while loading. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/distributed/fsdp/fully_sharded_data_parallel.py summon_full_params; measured:
        tests/measured/training.json#litgpt-fsdp-llama-2-13b-mb1-4g
    """
    return parameters * element_bytes + ceil_div(parameters * element_bytes, ranks)


def flat_unit_copies(*, shard_bytes: int) -> int:
    """
    What FSDP1 keeps beside the shards of flat units in mixed precision.

    Args:
        shard_bytes: The rank's shard. [bytes]

    Returns:
        Part of the 16-bit copies of shards that is there at every moment: 44 % of the shard. [bytes]

    Source:
        pytorch/pytorch@v2.1.0 torch/distributed/fsdp/flat_param.py (_mp_shard); measured:
        tests/measured/training.json#litgpt-fsdp-phi-1.5-mb1-2g (0.42 of the shard), #litgpt-fsdp-llama-2-13b-mb1-4g (0.47)
    """
    return shard_bytes * 44 // 100


def deferred_gradients(*, parameters: int, element_bytes: int) -> int:
    """
    Gradients of earlier micro-batches that wait whole on every rank because their reduction is put off.

    Args:
        parameters: Trainable parameters of the rank's model part, uncut. [unitless]
        element_bytes: Width they are computed in. [bytes]

    Returns:
        Size. [bytes]

    Source:
        pytorch/pytorch@v2.1.0 torch/distributed/fsdp/fully_sharded_data_parallel.py no_sync ("each rank accumulates the full
        gradients"); huggingface/accelerate@v1.15.0 concept_guides/gradient_synchronization.md
    """
    return parameters * element_bytes


def hooked_inputs(*, hidden_size: int, element_bytes: int) -> int:
    """
    Gradient that hooks of FSDP1 keep of a layer that backward has passed, when its weights are frozen and it was recomputed
    reentrantly; the checkpoint itself stays too.

    The hook that reshards such a layer waits for gradients of its inputs, and holds the checkpoint and its gradient
    until backward ends.

    Args:
        hidden_size: Width of the residual stream. [elements]
        element_bytes: Width of its elements. [bytes]

    Returns:
        Size per layer. [bytes/token]

    Source:
        pytorch/pytorch@v2.2.0 torch/distributed/fsdp/_runtime_utils.py _register_post_backward_reshard_only_hook; measured:
        tests/measured/heldout_training.json#fms-llama-2-70b-qlora-2g-b2
    """
    return hidden_size * element_bytes


def distributed_optimizer_states(*, parameters: int, ranks: int) -> int:
    """
    fp32 main parameters and two moments, sharded over the data-parallel (and context-parallel) ranks.

    Args:
        parameters: Parameters of the rank's model part. [unitless]
        ranks: Ranks that share them. [unitless]

    Returns:
        Size. [bytes]

    Source:
        NVIDIA/Megatron-LM@d98e8a64d megatron/core/optimizer/distrib_optimizer.py; theoretical_memory_usage.py (6 + 12/d)
    """
    return ceil_div(12 * parameters, ranks)


def in_flight(*, stage: int, stages: int, micro_batches: int) -> int:
    """
    Micro-batches whose activations a stage holds in the one-forward-one-backward schedule.

    Args:
        stage: Number of the stage, from 0. [unitless]
        stages: Pipeline stages. [unitless]
        micro_batches: Micro-batches of a step. [unitless]

    Returns:
        Micro-batches. [unitless]

    Source:
        NVIDIA/Megatron-LM@d98e8a64d megatron/core/pipeline_parallel/schedules.py
        forward_backward_pipelining_without_interleaving (num_warmup_microbatches)
    """
    return min(stages - stage, micro_batches)


def interleaved_in_flight(*, stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """
    Model chunks whose activations a stage holds in the interleaved schedule.

    Args:
        stage: Number of the stage, from 0. [unitless]
        stages: Pipeline stages. [unitless]
        chunks: Model chunks per stage. [unitless]
        micro_batches: Micro-batches of a step. [unitless]

    Returns:
        Chunks, each of layers / (stages x chunks). [unitless]

    Source:
        NVIDIA/Megatron-LM@d98e8a64d megatron/core/pipeline_parallel/schedules.py get_pp_rank_microbatches
    """
    return min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, micro_batches * chunks)
