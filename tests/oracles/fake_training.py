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

What a CPU build of torch does differently from a CUDA build is mended below, each with its reason. Not seen at all:
cuBLAS workspaces, the CUDA context, NCCL, compiled or Triton kernels, and temporaries inside other kernels.
"""

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import subprocess
import sys
import time
import weakref
from pathlib import Path

HERE = Path(__file__).parent


def load_fake_cuda():
    """Builds and loads the shim; it has to be there before torch is imported."""
    root = Path(importlib.util.find_spec("torch").origin).parent
    source, library = HERE / "fake_cuda.cpp", HERE / "build" / "libfake_cuda.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(exist_ok=True)
        flags = [
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            f"-I{root}/include",
            f"-L{root}/lib",
            f"-Wl,-rpath,{root}/lib",
        ]
        subprocess.run(
            ["g++", *flags, str(source), "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-o", str(library)], check=True
        )
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


load_fake_cuda()

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

sys.path.insert(0, str(HERE))
from caching_allocator import CachingAllocator, rounded  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


# ---- what a CUDA build does and a CPU build does not ----


class FusedSilu(torch.autograd.Function):
    """One kernel on CUDA; a CPU build decomposes the backward pass into five temporaries."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.ops.aten.silu.default(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.empty_like(x)


_math_attention = torch.nn.functional.scaled_dot_product_attention


def cuda_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The kernel a CUDA build chooses: flash without a mask, memory-efficient with one, else the math path."""
    half = (torch.bfloat16, torch.float16)
    if torch.is_autocast_enabled("cuda") and query.dtype not in half:
        query, key, value = (t.to(torch.bfloat16) for t in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(torch.bfloat16)
    if attn_mask is None and query.dtype in half and query.shape[-1] == value.shape[-1] <= 256:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if query.shape[1] == key.shape[1]:
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                zero = torch.zeros((), dtype=query.dtype, device=query.device)
                attn_mask = torch.where(attn_mask, zero, float("-inf"))
            attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, attn_mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]
    return _math_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def flash_backward_workspace(arguments):
    """fp32 accumulator of dq, softmax sums, and dk/dv for all query heads (flash_api.cpp mha_bwd)."""
    query, key = arguments[1], arguments[2]
    batch, heads, length, head_dim = query.shape
    padded = -(-length // 128) * 128
    rounded_dim = -(-head_dim // 32) * 32 if head_dim <= 128 else (192 if head_dim <= 192 else 256)
    sizes = [batch * heads * padded * rounded_dim * 4, batch * heads * padded * 4]
    if key.shape[1] != heads:
        sizes += [batch * key.shape[2] * heads * head_dim * query.element_size()] * 2
    return sizes


def mend_environment():
    """Answers that depend on a real GPU or on tensor data, as a CUDA machine with unpadded input gives them."""
    import torch.cuda.amp.common as amp
    import transformers.masking_utils as masks

    torch.nn.functional.silu = lambda x, inplace=False: FusedSilu.apply(x)
    torch.nn.functional.scaled_dot_product_attention = cuda_attention
    amp.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    masks.find_packed_sequence_indices = lambda *_, **__: None


# ---- the ledger ----


class Ledger(TorchDispatchMode):
    """Every storage on the device, from its allocation to its release, in order."""

    def __init__(self):
        super().__init__()
        self.allocated = 0
        self.phase = "load"
        self.peaks, self.peak_operators, self.events, self.live = {}, {}, [], {}
        self.operator = None
        self._next = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operator = func
        if self._accumulates_in_place(func, args):
            return args[0]
        workspace = []
        if func._schema.name == "aten::_scaled_dot_product_flash_attention_backward":
            workspace = [self._allocate(size) for size in flash_backward_workspace(args)]
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            self.see(tensor)
        for number, size in workspace:
            self._release(number, size)
        return result

    def _accumulates_in_place(self, func, args):
        """
        Sums of gradients, which the engine makes in place for plain tensors but never for tensor subclasses
        (torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace).
        """
        if func is not torch.ops.aten.add.Tensor or self.phase != "backward" or torch.is_grad_enabled():
            return False
        first, second = args[:2]
        return isinstance(second, torch.Tensor) and first.shape == second.shape and first.dtype == second.dtype

    def see(self, tensor):
        """Counts a tensor's storage once."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        known = self.live.get(id(storage))
        if storage.nbytes() == 0 or (known is not None and known() is storage):
            return
        number, size = self._allocate(storage.nbytes())
        key = id(storage)
        self.live[key] = weakref.ref(storage, lambda ref: self._forget(key, ref, number, size))

    def _forget(self, key, ref, number, size):
        if self.live.get(key) is ref:
            del self.live[key]
        self._release(number, size)

    def _allocate(self, size):
        self._next += 1
        self.events.append((self._next, size))
        self.allocated += rounded(size)
        if self.allocated > self.peaks.get(self.phase, 0):
            self.peaks[self.phase] = self.allocated
            self.peak_operators[self.phase] = str(self.operator)
        return self._next, size

    def _release(self, number, size):
        self.events.append((number, 0))
        self.allocated -= rounded(size)

    def reserved(self):
        """Peak of the caching allocator over the whole record."""
        allocator, blocks = CachingAllocator(), {}
        for number, size in self.events:
            if size:
                blocks[number] = allocator.malloc(size)
            else:
                allocator.release(blocks.pop(number))
        return allocator.peak_reserved


# ---- 4-bit linears, as bitsandbytes stores and multiplies them ----


class Dequantized(torch.autograd.Function):
    """
    MatMul4Bit: the matrix is dequantized in forward and again in backward; the input is not kept.

    bitsandbytes@0.43.2..0.49 autograd/_functions.py
    """

    @staticmethod
    def weight(module, dtype):
        scales = module.absmax.to(torch.float32) if module.double_quantized else None
        matrix = torch.empty(module.out_features, module.in_features, dtype=dtype, device=module.weight.device)
        del scales
        return matrix

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return torch.nn.functional.linear(x, Dequantized.weight(module, x.dtype))

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ Dequantized.weight(ctx.module, gradient.dtype), None


class FourBitLinear(torch.nn.Module):
    """Packed nibbles and block scales in place of a frozen nn.Linear."""

    def __init__(self, linear, *, double_quantized, compute_dtype):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.double_quantized, self.compute_dtype = double_quantized, compute_dtype
        elements = self.in_features * self.out_features
        blocks = -(-elements // 64)
        self.weight = self._stored((elements + 1) // 2, torch.uint8)
        self.code = self._stored(16, torch.float32)
        if double_quantized:
            self.absmax = self._stored(blocks, torch.uint8)
            self.nested_absmax = self._stored(-(-blocks // 256), torch.float32)
            self.nested_code = self._stored(256, torch.float32)
        else:
            self.absmax = self._stored(blocks, torch.float32)
        self.bias = None if linear.bias is None else self._stored(self.out_features, linear.bias.dtype)

    @staticmethod
    def _stored(elements, dtype):
        return torch.nn.Parameter(torch.empty(elements, dtype=dtype, device="meta"), requires_grad=False)

    def forward(self, x):
        dtype = x.dtype
        y = Dequantized.apply(x.to(self.compute_dtype), self)
        if self.bias is not None:
            y = y + self.bias.to(self.compute_dtype)
        return y.to(dtype)


class FourBitLora(torch.nn.Module):
    """peft.tuners.lora.bnb.Linear4bit.forward on such a base."""

    def __init__(self, base, rank, dropout, dtype):
        super().__init__()
        self.base = base
        with torch.device("meta"):
            self.lora_A = torch.nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
            self.lora_B = torch.nn.Linear(rank, base.out_features, bias=False, dtype=dtype)
        self.dropout = torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()

    def forward(self, x):
        result = self.base(x).clone()
        if not torch.is_autocast_enabled("cuda"):
            expected = result.dtype
            x = x.to(self.lora_A.weight.dtype)
            output = self.lora_B(self.lora_A(self.dropout(x))) * 2.0
            return result + output.to(expected)
        output = self.lora_B(self.lora_A(self.dropout(x))) * 2.0
        return result + output


# ---- building and running ----


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


def replace(model, name, module):
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, module)


def quantize(model, run):
    """4-bit base with adapters, the rest upcast to fp32 as prepare_model_for_kbit_training does."""
    training = run["training"]
    lora, double = training["lora"], run.get("weights", "bnb-nf4-dq").endswith("-dq")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for name, linear in list(model.named_modules()):
        if not isinstance(linear, torch.nn.Linear) or "lm_head" in name:
            continue
        module = FourBitLinear(
            linear, double_quantized=double, compute_dtype=DTYPES[training.get("compute_dtype", "bf16")]
        )
        if name.rpartition(".")[2] in lora["target_modules"]:
            module = FourBitLora(module, lora["rank"], lora.get("dropout", 0.0), DTYPES[lora.get("dtype", "fp32")])
        replace(model, name, module)
    if run.get("kbit_fp32", True):
        for parameter in model.parameters():
            if parameter.dtype in (torch.bfloat16, torch.float16):
                parameter.data = parameter.data.to(torch.float32)


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


def bytes_of(tensors):
    storages = {
        id(t.untyped_storage()): t.untyped_storage().nbytes()
        for t in tensors
        if t is not None and t.device.type == "cuda"
    }
    return sum(rounded(size) for size in storages.values())


def measure(run):
    """Peaks by phase of the second step, with what was resident. [bytes]"""
    started = time.time()
    mend_environment()
    training = run["training"]
    model = build(run)
    ledger = Ledger()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cuda")
        if hasattr(model, "tie_weights"):
            model.tie_weights()
        model.train()
        if training.get("gradient_checkpointing") == "full":
            arguments = {"use_reentrant": run.get("reentrant", False), "preserve_rng_state": False}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)
            if training.get("method", "full") != "full":
                model.enable_input_require_grads()
        for tensor in [*model.parameters(), *model.buffers()]:
            ledger.see(tensor)
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


def record(path):
    """All runs of the matrix that are not recorded yet, one line each."""
    import transformers  # noqa: F401
    from training_matrix import RUNS

    done = (
        {json.dumps(json.loads(line)["run"], sort_keys=True) for line in path.read_text().splitlines()}
        if path.exists()
        else set()
    )
    for run in RUNS:
        if json.dumps(run, sort_keys=True) not in done:
            with path.open("a") as out:
                out.write(json.dumps({"run": run, "result": forked(run)}) + "\n")


def forked(run):
    """Measured in a child, so that patched modules and fake tensors leave nothing behind."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            text = json.dumps(measure(run))
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
            record(Path(path))
        case ["compact", path]:
            compact(Path(path))
