"""Trainable parameters of adapters: low-rank pairs, scales, virtual tokens."""


def lora(*, in_features: int, out_features: int, rank: int, copies: int = 1) -> int:
    """
    A low-rank pair beside a linear.

    Args:
        in_features: Columns of the linear. [elements]
        out_features: Rows. [elements]
        rank: Rank of the pair. [unitless]
        copies: Linears of this shape: layers, experts. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2106.09685 section 4.1; huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py update_layer
    """
    return copies * rank * (in_features + out_features)


def dora(*, in_features: int, out_features: int, rank: int, copies: int = 1) -> int:
    """
    A low-rank pair and a magnitude per output.

    Args:
        in_features: Columns of the linear. [elements]
        out_features: Rows. [elements]
        rank: Rank of the pair. [unitless]
        copies: Linears of this shape. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2402.09353; huggingface/peft@v0.21.2 src/peft/tuners/lora/dora.py DoraLinearLayer
    """
    return copies * (rank * (in_features + out_features) + out_features)


def ia3(*, scaled: int, copies: int = 1) -> int:
    """
    A scale per output of keys and values, per input of the feed-forward's last linear.

    Args:
        scaled: Elements that are scaled. [elements]
        copies: Linears of this shape. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2205.05638 section 3.3; huggingface/peft@v0.21.2 src/peft/tuners/ia3/layer.py
    """
    return copies * scaled


def prompt(*, virtual_tokens: int, hidden_size: int) -> int:
    """
    Embeddings of virtual tokens before the input.

    Args:
        virtual_tokens: Tokens. [tokens]
        hidden_size: Width of the model. [elements]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2104.08691; huggingface/peft@v0.21.2 src/peft/tuners/prompt_tuning/model.py PromptEmbedding
    """
    return virtual_tokens * hidden_size


def prefix(*, virtual_tokens: int, num_hidden_layers: int, key_value_width: int) -> int:
    """
    Keys and values of virtual tokens in every layer.

    Args:
        virtual_tokens: Tokens. [tokens]
        num_hidden_layers: Layers. [layers]
        key_value_width: KV heads x head size. [elements]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2101.00190; huggingface/peft@v0.21.2 src/peft/tuners/prefix_tuning/model.py PrefixEncoder
    """
    return virtual_tokens * num_hidden_layers * 2 * key_value_width
