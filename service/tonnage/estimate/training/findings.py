"""What must be confirmed about a training card before its answer can be held to."""

from tonnage.estimate.training.losses import compiled_loss_open
from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.settings import Settings
from tonnage.spec.report import Finding
from tonnage.spec.workload import Workload

_GENERATION = Finding(
    status="needs_confirmation",
    reason="samples are taken to come from generate(): state vllm_gpu_memory_utilization where an engine shares the card",
    field="/training/objective",
)
_LOSS = Finding(
    status="needs_confirmation",
    reason="the loss of this objective differs by version, and no version is stated",
    field="/training/framework_version",
)
_VERSION = Finding(
    status="needs_confirmation",
    reason="this version of the framework is newer or older than any whose defaults were read",
    field="/training/framework_version",
)


def findings_of(workload: Workload, objective: Objective) -> tuple[Finding, ...]:
    """Findings of a training card, whatever its GPU."""
    training = workload.training
    unversioned = training is not None and training.framework_version is None
    special = training is not None and training.objective not in ("sft", "pretrain")
    found = (
        (objective.generates and (training is None or training.vllm_gpu_memory_utilization is None), _GENERATION),
        (unversioned and special, _LOSS),
        (not workload.profile_certain, _VERSION),
    )
    return tuple(finding for holds, finding in found if holds)


_CAP = "how far samples reach below the stated length: packing, or sequence_lengths = fixed, would narrow the band"
_KERNELS = (
    "what inductor makes of the loss (4 or 6 bytes per logit) and whether freed pages serve again (expandable segments)"
)


def open_facts(job: Settings) -> tuple[str, ...]:
    """
    Facts that the card leaves open and that the band therefore covers.

    Args:
        job: The job.

    Returns:
        What would narrow it, in words.
    """
    found = ((job.varying and not job.packed, _CAP), (compiled_loss_open(job), _KERNELS))
    return tuple(words for holds, words in found if holds)
