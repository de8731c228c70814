"""
Exact allocation record of two training steps of a real model, without a GPU and without weights.

The model is the Hugging Face class of the given config.json (with PEFT's adapters where asked), built on the meta
device and run under FakeTensorMode on a CUDA device that computes nothing (fake_cuda.cpp). Real forward, backward
and optimizer code runs; `Ledger` sees every storage come and go. The second step is what is reported, since the
first one lacks the optimizer states.

Run it in an environment of its own (requirements/oracle.in); nothing else in the project needs torch:

    python tests/oracles/fake_training.py record build/runs.jsonl     # what of training_matrix.py is not there yet
    python tests/oracles/fake_training.py compact build/runs.jsonl    # into training_runs.json
    python tests/oracles/fake_training.py run '{"config": {...}, "training": {...}}'

fake_gpu.py tells what is mended for it, and what it does not see.
"""

import contextlib
import gc
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fake_four_bit import quantize  # noqa: E402  (paths come first)
from fake_gpu import DTYPES, Ledger, bytes_of, mend_environment, torch  # noqa: E402  (paths come first)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  (paths come first)


def build(run):
    """The model of a run on the meta device, with its adapters and dtypes."""
    import transformers

    training = run["training"]
    config = transformers.AutoConfig.for_model(**run["config"])
    config.use_cache = False
    dtype = DTYPES[training.get("weight_dtype", "bf16")]
    implementation = training.get("attn_implementation", "sdpa")
    with torch.device("meta"):
        kind = getattr(transformers, f"AutoModelFor{run.get('task', 'CausalLM')}")
        model = kind.from_config(config, dtype=dtype, attn_implementation=implementation)
    method = training.get("method", "full")
    if method == "qlora":
        quantize(model, run)
    elif method == "lora":
        model = adapt(model, training["lora"], run.get("task", "CausalLM"))
    return model


PEFT_TASKS = {"CausalLM": "CAUSAL_LM", "SequenceClassification": "SEQ_CLS", "Seq2SeqLM": "SEQ_2_SEQ_LM"}


def adapt(model, lora, task):
    """PEFT's own adapters; their dtype is set afterwards, since PEFT skips that on meta tensors."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora["rank"], lora_alpha=2 * lora["rank"], lora_dropout=lora.get("dropout", 0.0), task_type=PEFT_TASKS[task],
        target_modules=lora["target_modules"], modules_to_save=lora.get("modules_to_save"), use_dora=lora.get("dora", False),
    )  # fmt: skip
    with torch.device("meta"):
        model = get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(DTYPES[lora.get("dtype", "fp32")])
    return model


def optimizer_of(training, parameters):
    implementation = training.get("optimizer_implementation", "fused")
    flags = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for_loop": {"foreach": False}}[implementation]
    match training.get("optimizer", "adamw"):
        case "adamw":
            return torch.optim.AdamW(parameters, 1e-4, **flags)
        case "sgd":
            return torch.optim.SGD(parameters, 1e-4, foreach=True)
        case "sgd_momentum":
            return torch.optim.SGD(parameters, 1e-4, momentum=0.9, foreach=True)
        case other:
            raise ValueError(other)


def started_on_gpu(model, ledger):
    """Moves a model to the fake GPU, where the ledger counts its parameters and buffers."""
    model.to_empty(device="cuda")
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    model.train()
    for tensor in [*model.parameters(), *model.buffers()]:
        ledger.see(tensor)


def measure(run):
    """Peaks by phase of the second step, with what was resident. [bytes]"""
    started = time.time()
    mend_environment()
    training = run["training"]
    model = build(run)
    ledger = Ledger()
    with FakeTensorMode(allow_non_fake_inputs=True):
        started_on_gpu(model, ledger)
        if training.get("gradient_checkpointing") == "full":
            arguments = {"use_reentrant": run.get("reentrant", False), "preserve_rng_state": False}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)
            if training.get("method", "full") != "full":
                model.enable_input_require_grads()
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = optimizer_of(training, trainable)
        result = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "trainable": sum(p.numel() for p in trainable),
            "weights_bytes": bytes_of([*model.parameters(), *model.buffers()]),
        }
        with ledger:
            two_steps(model, run, ledger, optimizer, trainable, result)
        states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        result["optimizer_bytes"] = bytes_of(states)
    phases = ("forward", "backward", "optimizer_step")
    result["peak_by_phase"] = {phase: ledger.peaks[phase] for phase in phases}
    result["peak_operators"] = {phase: ledger.peak_operators[phase] for phase in phases}
    result["peak_allocated"] = max(result["peak_by_phase"].values())
    result["peak_reserved"] = ledger.reserved()
    result["seconds"] = round(time.time() - started, 1)
    return result


def two_steps(model, run, ledger, optimizer, trainable, result):
    training = run["training"]
    shape = (training["micro_batch_size"], training["sequence_length"])
    steps = training.get("gradient_accumulation_steps", 1)
    weight_dtype, compute_dtype = training.get("weight_dtype", "bf16"), training.get("compute_dtype", "bf16")
    autocast = run.get("autocast", weight_dtype != compute_dtype or training.get("method") == "qlora")
    ids = torch.empty(shape, dtype=torch.long, device="cuda")
    mask = {"use_cache": False} if run.get("task", "CausalLM") == "CausalLM" else {}
    labels = (
        torch.empty(shape[:1], dtype=torch.long, device="cuda") if run.get("task") == "SequenceClassification" else ids
    )
    if run.get("padded"):
        mask["attention_mask"] = torch.empty((shape[0], 1, shape[1], shape[1]), dtype=torch.bool, device="cuda")
    for step in (1, 2):
        ledger.peaks.clear()
        for _ in range(steps):
            ledger.phase = "forward"
            with torch.autocast("cuda", DTYPES[compute_dtype]) if autocast else contextlib.nullcontext():
                loss = model(input_ids=ids, labels=labels, **mask).loss
            if steps > 1:
                loss = loss / steps
            result["after_forward_bytes"] = ledger.allocated
            ledger.phase = "backward"
            loss.backward()
            del loss
        result["gradient_bytes"] = bytes_of([p.grad for p in trainable])
        ledger.phase = "optimizer_step"
        torch.nn.utils.clip_grad_norm_(trainable, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ledger.phase = "idle"
        gc.collect()
        if step == 1:
            result["resident_bytes"] = ledger.allocated


def record_all(runs, measured, path):
    """All runs that are not recorded yet, one line each."""
    import transformers  # noqa: F401

    done = (
        {json.dumps(json.loads(line)["run"], sort_keys=True) for line in path.read_text().splitlines()}
        if path.exists()
        else set()
    )
    for run in runs:
        if json.dumps(run, sort_keys=True) not in done:
            with path.open("a") as out:
                out.write(json.dumps({"run": run, "result": forked(run, measured)}) + "\n")


def forked(run, measured):
    """Measured in a child, so that patched modules and fake tensors leave nothing behind."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            text = json.dumps(measured(run))
        except Exception as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:400]})
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        text = result.read()
    os.waitpid(child, 0)
    return json.loads(text or '{"error": "the process died"}')


USUAL = {
    "method": "full", "weight_dtype": "bf16", "compute_dtype": "bf16", "optimizer": "adamw", "optimizer_implementation": "fused",
}  # fmt: skip
"""Left out of training_runs.json."""


def compact(path):
    """The recorded runs with their figures, configs once each. [bytes]"""
    import transformers

    configs, names, runs = {}, {}, []
    for line in path.read_text().splitlines():
        run, result = json.loads(line)["run"], json.loads(line)["result"]
        if "error" in result:
            continue
        text = json.dumps(run["config"], sort_keys=True)
        if text not in names:
            names[text] = run["family"] if run["family"] not in configs else f"{run['family']}, other depth"
            configs[names[text]] = run["config"]
        flags = {k: v for k, v in run.items() if k not in ("family", "config", "training")}
        training = {k: v for k, v in run["training"].items() if USUAL.get(k) != v}
        figures = [result["trainable"], *result["peak_by_phase"].values(), result["peak_reserved"]]
        runs.append({"model": names[text], "training": training} | flags | {"figures": figures})
    about = {
        "source": "tests/oracles/fake_training.py; figures: trainable parameters, peaks of forward, backward, optimizer step, reserved",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "usual": USUAL,
    }
    lines = ["{", *(f"{json.dumps(k)}: {json.dumps(v)}," for k, v in about.items()), '"configs": {']
    lines.append(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in configs.items()))
    lines.append('},\n"runs": [')
    lines.append(",\n".join(json.dumps(run, separators=(",", ":")) for run in runs))
    lines.append("]}")
    (HERE / "training_runs.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", text]:
            print(json.dumps(measure(json.loads(text))))
        case ["record", path]:
            from training_matrix import RUNS

            record_all(RUNS, measure, Path(path))
        case ["compact", path]:
            compact(Path(path))
