"""Methods by what they train."""

ADAPTER_METHODS = frozenset({"lora", "qlora", "dora", "rslora"})
PROMPT_METHODS = frozenset({"prompt-tuning", "prefix-tuning"})
LIGHT_METHODS = PROMPT_METHODS | {"ia3"}
