"""
What trains and what optimizers keep, by the real libraries: PEFT's light methods on meta models, optimizers on a small one.

Writes light_methods.json. Beside the packages of fake_training.py it needs galore-torch, came-pytorch and apollo-torch
(with --no-deps: they ask for bitsandbytes, of which nothing is used here).

    python tests/oracles/light_methods.py
"""

import json
import sys
from pathlib import Path
from types import ModuleType

import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from training_matrix import FAMILIES  # noqa: E402  (paths come first)

TOKENS = 20
SMALL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
LIGHT = [
    (family, method)
    for family in ("llama-3.1-8b", "qwen2.5-7b", "mistral-7b", "gemma-2b", "pythia-6.9b", "falcon-7b", "bloom-7b1", "opt-1.3b", "gpt2")
    for method in ("ia3", "prompt-tuning", "prefix-tuning")
    if (family, method) != ("falcon-7b", "prefix-tuning")  # counted for all heads, of which there is one: it cannot run
]  # fmt: skip


def trained(family, method):
    """Parameters that train under PEFT's own defaults for the model type."""
    import peft

    settings = transformers.AutoConfig.for_model(**FAMILIES[family])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(settings)
    config = {
        "ia3": lambda: peft.IA3Config(task_type="CAUSAL_LM"),
        "prompt-tuning": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=TOKENS),
        "prefix-tuning": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=TOKENS),
    }[method]()
    with torch.device("meta"):
        model = peft.get_peft_model(model, config)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def optimizers(matrices, rest):
    """By catalogue id an optimizer over the matrices inside layers and the rest."""
    sys.modules.setdefault("bitsandbytes", _nothing())
    from apollo_torch import APOLLOAdamW
    from came_pytorch import CAME
    from galore_torch import GaLoreAdafactor, GaLoreAdamW
    from transformers.optimization import Adafactor

    both = [*matrices, *rest]
    low = {"update_proj_gap": 200, "scale": 1.0, "proj_type": "std"}
    galore = [{"params": rest}, {"params": matrices, "rank": 128} | low]
    apollo = {"proj": "random", "scale_type": "channel"}
    mini = {"proj": "random", "scale_type": "tensor", "scale": 128}
    return {
        "adamw": lambda: torch.optim.AdamW(both),
        "sgd_momentum": lambda: torch.optim.SGD(both, 1e-3, momentum=0.9),
        "adafactor": lambda: Adafactor(both, lr=1e-3, relative_step=False, scale_parameter=False),
        "adafactor_momentum": lambda: Adafactor(both, lr=1e-3, relative_step=False, scale_parameter=False, beta1=0.9),
        "came": lambda: CAME(both, lr=1e-4, betas=(0.9, 0.999, 0.9999), eps=(1e-30, 1e-16)),
        "galore_adamw": lambda: GaLoreAdamW(galore),
        "galore_adafactor": lambda: GaLoreAdafactor(galore, lr=1e-3, relative_step=False, scale_parameter=False),
        "apollo_adamw": lambda: APOLLOAdamW([{"params": rest}, {"params": matrices, "rank": 128} | low | apollo]),
        "apollo_mini": lambda: APOLLOAdamW([{"params": rest}, {"params": matrices, "rank": 1} | low | mini]),
    }


def _nothing():
    """A stand-in with whatever name is asked for, so that 8-bit variants which are not used can be imported."""
    module = ModuleType("bitsandbytes")
    module.__path__ = []
    for name in ("bitsandbytes.optim", "bitsandbytes.optim.optimizer", "bitsandbytes.functional"):
        inner = ModuleType(name)
        inner.Optimizer2State = torch.optim.Optimizer
        sys.modules[name] = inner
    return module


def kept(name):
    """Bytes of an optimizer's state tensors after a step, projectors included."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**SMALL), dtype=torch.float32
    )
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers" in n]
    rest = [p for n, p in model.named_parameters() if not (p.ndim == 2 and "layers" in n)]
    optimizer = optimizers(matrices, rest)[name]()
    ids = torch.zeros((1, 8), dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    return sum(_bytes(value) for state in optimizer.state.values() for value in state.values())


def _bytes(value):
    """Of a tensor, or of those that a projector holds; counters of a step are no states."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() if value.ndim else 0
    held = vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(_bytes(v) for v in held if isinstance(v, torch.Tensor))


def main():
    """Rewrites the golden file."""
    import peft

    text = {
        "source": "tests/oracles/light_methods.py", "torch": torch.__version__, "peft": peft.__version__,
        "virtual_tokens": TOKENS, "trainable": [[*pair, trained(*pair)] for pair in LIGHT],
        "small": SMALL, "states": {name: kept(name) for name in optimizers([], [torch.zeros(1)])},
    }  # fmt: skip
    text["configs"] = {family: FAMILIES[family] for family, _ in LIGHT}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in text.items())
    (HERE / "light_methods.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
