"""What a card states of its experts that cannot hold together."""

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.placement import expert_refusal
from tonnage.spec.workload import Workload

_EXPERTS = "/placement/expert_parallel_size"
_SWITCH = "/serving/enable_expert_parallel"


def refuse_experts(workload: Workload) -> None:
    """
    Refuse experts dealt out as the engine would not, or that the model does not have.

    Args:
        workload: Resolved card.

    Raises:
        ContradictoryWorkload: With the field and what would hold.

    Source: vllm-project/vllm@v0.19.0 vllm/config/parallel.py ParallelConfig (over tensor x data ranks)
    """
    placement, switch = workload.placement, getattr(workload.serving, "enable_expert_parallel", None)
    size = placement.expert_parallel_size
    if switch and workload.model.known and not any(group.layer.moe for group in workload.model.layers):
        raise ContradictoryWorkload(
            "enable_expert_parallel deals out routed experts, and this model has none: leave it out", pointer=_SWITCH
        )
    if size == 1:
        return
    if switch is False:
        raise ContradictoryWorkload(
            f"expert_parallel_size is {size} but enable_expert_parallel is false, which cuts experts: state one of them",
            pointer=_EXPERTS,
        )
    derived = placement.tensor_parallel_size * placement.data_parallel_size
    if hasattr(workload.serving, "enable_expert_parallel") and size != derived:
        raise ContradictoryWorkload(
            f"expert_parallel_size {size}: vllm deals experts out over all tensor- and data-parallel ranks, here {derived}",
            pointer=_EXPERTS,
        )
    if reason := expert_refusal(workload.model, placement):
        raise ContradictoryWorkload(reason, pointer=_EXPERTS)
