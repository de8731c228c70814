"""4-bit linears as bitsandbytes stores and multiplies them, with PEFT's adapters beside them."""

from fake_gpu import DTYPES, torch


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
