"""Logits that an evaluation loop keeps on the GPU until they are moved to the host, and what joining them takes."""


def batches(*, samples: int, per_device_batch_size: int, ranks: int, accumulation_steps: int) -> int:
    """
    Batches whose logits are on the GPU at once.

    Args:
        samples: Of the evaluation set; 0: not known. [unitless]
        per_device_batch_size: Samples of a batch on one GPU. [unitless]
        ranks: Data-parallel ranks, which share the set. [unitless]
        accumulation_steps: Batches after which the host takes them (eval_accumulation_steps); 0: at the end. [unitless]

    Returns:
        Batches, at least one. [unitless]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/trainer.py Trainer.evaluation_loop
    """
    all_of_them = -(-samples // (per_device_batch_size * ranks))
    known = [n for n in (all_of_them, accumulation_steps) if n]
    return min(known, default=1)


def kept_before(*, batch_bytes: int, batches: int) -> int:
    """
    Logits there when the last of the batches begins: those joined so far, and the last one's own, which a variable holds.

    Args:
        batch_bytes: Logits of one batch, gathered from all ranks. [bytes]
        batches: Batches whose logits are kept. [unitless]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/trainer.py Trainer.evaluation_loop (`logits` lives until it is
        bound again); recorded: tests/oracles/phase_runs.json
    """
    earlier = batches - 1
    return batch_bytes * (earlier + (1 if earlier > 1 else 0))


def joining(*, batch_bytes: int, batches: int) -> int:
    """
    Logits while the last batch is joined to the others: the old sum, the batch and the new sum.

    Args:
        batch_bytes: Logits of one batch, gathered from all ranks. [bytes]
        batches: Batches whose logits are kept. [unitless]

    Returns:
        Size: twice what is kept, as soon as there are two batches. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/trainer_pt_utils.py EvalLoopContainer.add, nested_concat
        (torch.cat); recorded: tests/oracles/phase_runs.json
    """
    return batch_bytes if batches == 1 else 2 * batches * batch_bytes
