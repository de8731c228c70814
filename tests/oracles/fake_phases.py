"""
Allocated peaks of what happens between training steps, recorded as fake_training.py records the steps.

Evaluation: the Trainer's own prediction_step and EvalLoopContainer around a real model. Merge: PEFT's own
merge_and_unload. Nothing but weights and adapters is resident.

    python tests/oracles/fake_phases.py record build/phases.jsonl     # what of RUNS is not there yet
    python tests/oracles/fake_phases.py compact build/phases.jsonl    # into phase_runs.json
"""

import contextlib
import json
import sys
from pathlib import Path
from types import MethodType, SimpleNamespace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fake_gpu import DTYPES, Ledger, bytes_of, mend_environment, torch  # noqa: E402  (paths come first)
from fake_training import build, record_all, started_on_gpu  # noqa: E402  (paths come first)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  (paths come first)
from training_matrix import AUTOCAST, LINEARS, PURE_FP32, run  # noqa: E402  (paths come first)

WITH_METRICS = {"prediction_loss_only": False}


def evaluated(family, samples, length, kept=None, **more):
    """An evaluation of some batches; `kept`: whose logits the GPU holds."""
    evaluation = {"per_device_eval_batch_size": samples} | (WITH_METRICS | {"samples": samples * kept} if kept else {})
    found = run(family, 1, length, **more)
    return found | {"phase": "evaluation", "training": found["training"] | {"evaluation": evaluation}}


def merged(family, **lora):
    return run(family, 1, 128, lora=lora) | {"phase": "merge"}


DENSE = ("llama-3.1-8b", "llama-3.2-1b", "qwen3-8b", "gemma2-2b", "phi-2", "gpt2", "olmo2-7b", "mistral-7b")
RUNS = [
    *(evaluated(family, 8, 512) for family in DENSE),
    *(evaluated(family, 8, 512, kept=3) for family in DENSE),
    *(evaluated("llama-3.2-1b", 8, 512, kept=kept) for kept in (1, 2, 10)),
    *(evaluated("llama-3.2-1b", 4, 1024, kept=kept, **AUTOCAST) for kept in (None, 1, 2, 3)),
    *(evaluated("qwen2.5-0.5b", 2, 2048, kept=kept, **PURE_FP32) for kept in (None, 3)),
    evaluated("llama-3.2-1b", 8, 512, attn_implementation="eager"),
    evaluated("llama-3.1-8b", 8, 512, lora={"dropout": 0.05}),
    evaluated("llama-3.1-8b", 8, 512, kept=3, lora={"dropout": 0.05}, gradient_checkpointing="full"),
    evaluated("qwen2.5-7b", 1, 4096, lora={"dtype": "bf16", "dropout": 0.05}),
    evaluated("bloom-7b1", 8, 512),
    evaluated("falcon-7b", 8, 512),
    *(merged(family) for family in ("llama-3.1-8b", "qwen2.5-7b", "gemma-2b")),
    merged("llama-3.1-8b", dtype="bf16"),
    merged("llama-3.1-8b", target_modules=LINEARS[:4]),
    merged("llama-3.1-8b", dora=True),
    merged("llama-3.2-1b", dora=True, dtype="bf16"),
]  # fmt: skip


def measure(run):
    """Resident bytes and the peak of the phase."""
    mend_environment()
    model = build(run)
    ledger = Ledger()
    with FakeTensorMode(allow_non_fake_inputs=True):
        started_on_gpu(model, ledger)
        resident = bytes_of([*model.parameters(), *model.buffers()])
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        with ledger:
            ledger.phase = run["phase"]
            (evaluate if ledger.phase == "evaluation" else merge)(model, run["training"], ledger)
    peak, operator = ledger.peaks[run["phase"]], ledger.peak_operators[run["phase"]]
    return {"trainable": trainable, "resident": resident, "peak": peak, "operator": operator}


def merge(model, training, ledger):
    model.merge_and_unload()


def evaluate(model, training, ledger):
    """Trainer.evaluation_loop without its data loader, its callbacks and the way to the host."""
    from transformers import Trainer
    from transformers.trainer_pt_utils import EvalLoopContainer

    asked = training["evaluation"]
    shape = (asked["per_device_eval_batch_size"], training["sequence_length"])
    loss_only = asked.get("prediction_loss_only", True)
    steps = 2 if loss_only else asked["samples"] // shape[0]
    model.eval()
    model.config.use_cache = False
    mix_precision(model, training)
    trainer = SimpleNamespace(
        label_names=["labels"], can_return_loss=False, model=model, args=SimpleNamespace(device="cuda", use_liger_kernel=False),
        _prepare_inputs=lambda inputs: inputs, _get_num_items_in_batch=lambda *_: None, compute_loss=compute_loss,
        _prepare_context_parallel_inputs=lambda _, inputs: (contextlib.nullcontext, inputs),
        compute_loss_context_manager=contextlib.nullcontext,
    )  # fmt: skip
    losses, predictions = EvalLoopContainer(), EvalLoopContainer()
    ids = torch.empty(shape, dtype=torch.long, device="cuda")
    for _ in range(steps):
        loss, logits, labels = Trainer.prediction_step(trainer, model, {"input_ids": ids, "labels": ids}, loss_only)
        losses.add(loss.repeat(shape[0]))
        if logits is not None:
            predictions.add(logits)
    del labels


def compute_loss(model, inputs, return_outputs=False, num_items_in_batch=None):
    outputs = model(**inputs)
    return outputs["loss"], outputs


def mix_precision(model, training):
    """What Accelerator.prepare_model does under mixed precision: autocast, and outputs in fp32."""
    from accelerate.utils import convert_outputs_to_fp32

    if training.get("weight_dtype", "bf16") == training.get("compute_dtype", "bf16"):
        return
    plain = model.forward.__func__
    under = torch.autocast("cuda", DTYPES[training["compute_dtype"]])
    model.forward = MethodType(convert_outputs_to_fp32(under(plain)), model)


def compact_runs(path, about, figures, target):
    """The recorded runs with their figures, configs once each."""
    configs, runs = {}, []
    for line in path.read_text().splitlines():
        found = json.loads(line)
        if "error" in found["result"]:
            continue
        run = found["run"]
        configs[run["family"]] = run.pop("config")
        runs.append(run | {"figures": [found["result"][name] for name in figures]})
    lines = ["{", f'"source": "{about}",', '"configs": {']
    lines.append(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in configs.items()))
    lines.append('},\n"runs": [')
    lines.append(",\n".join(json.dumps(run, separators=(",", ":")) for run in runs))
    lines.append("]}")
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", path]:
            record_all(RUNS, measure, Path(path))
        case ["compact", path]:
            about = "tests/oracles/fake_phases.py; figures: trainable parameters, resident bytes, peak of the phase"
            compact_runs(Path(path), about, ("trainable", "resident", "peak"), HERE / "phase_runs.json")
