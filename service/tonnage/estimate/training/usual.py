"""A model of which only the count is known, given the usual shape of that size; and the layers that train in any model."""

from msgspec.structs import replace

from tonnage.architecture import read_config
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.usual_shape import HEAD, VOCABULARY, WIDTH_PER_LAYER, usual_width
from tonnage.spec.model import LayerGroup, Model, Tensor


def encodes_only(model: Model) -> bool:
    """Whether the model has no decoder."""
    return bool(model.layers) and all(group.layer.role == "encoder" for group in model.layers)


def layer_groups(model: Model) -> tuple[LayerGroup, ...]:
    """Kinds of layers that a step runs through: all of them, encoders first."""
    return model.layers


@per_model()
def usual_model(model: Model, tensor_parallel_size: int, pipeline_parallel_size: int) -> Model:
    """
    A dense decoder of the count, in the proportions of published ones; a known model is returned as it is.

    Args:
        model: Model of which only the parameters may be known.
        tensor_parallel_size: What heads and matrices must be divisible by. [unitless]
        pipeline_parallel_size: What layers must be. [unitless]

    Returns:
        A model with layers, whose trust says that it is but a count.
    """
    if model.known:
        return model
    shaped = _shaped(model.parameters_total, tensor_parallel_size, pipeline_parallel_size)
    return replace(
        shaped,
        id=model.id,
        revision=model.revision,
        dtype=model.dtype,
        parameters_total=model.parameters_total,
        trainable_parameters=model.trainable_parameters,
        trust="count",
        source=model.source,
    )


@per_model()
def scoring_model(model: Model) -> Model:
    """
    The same with few numbers in place of a head over the vocabulary (…ForSequenceClassification).

    A decoder's gives one (a reward); an encoder's as many as it has labels, with a bias.
    """
    rest = tuple(t for t in model.outside if t.component != "lm_head" and t.role != "head")
    lost = sum(t.elements for t in model.outside if t not in rest and t.parameter)
    labels = int(model.config.get("num_labels") or 2) if encodes_only(model) else 1
    score = [
        Tensor(
            name="score.weight", component="lm_head", out_features=labels, in_features=model.hidden_size, role="score"
        )
    ]
    if encodes_only(model):
        score.append(Tensor(name="score.bias", component="lm_head", out_features=labels, role="score"))
    if model.code.dense_score_head and not any(t.role == "pooler" for t in rest):
        score += _dense(model.hidden_size)
    added = sum(t.elements for t in score)
    return replace(
        model,
        outside=(*rest, *score),
        tie_word_embeddings=False,
        parameters_total=model.parameters_total - lost + added,
    )


def _dense(width: int) -> list[Tensor]:
    """The layer before a classifier's scores."""
    return [
        Tensor(name="score.dense.weight", component="lm_head", out_features=width, in_features=width, role="pooler"),
        Tensor(name="score.dense.bias", component="lm_head", out_features=width, role="pooler"),
    ]


@remembered(256)
def _shaped(parameters: int, ranks: int, stages: int) -> Model:
    """12 x width x width per layer; the feed-forward and then the vocabulary take what is left of the count."""
    hidden = usual_width(parameters)
    layers = max(1, round(hidden / WIDTH_PER_LAYER / stages)) * stages
    head = min(HEAD, hidden)
    heads = max(1, round(hidden / head / ranks)) * ranks
    attention = 4 * hidden * heads * head
    inside = parameters - 2 * VOCABULARY * hidden - layers * attention
    step = 64 * ranks
    inner = max(1, inside // (3 * hidden * layers * step)) * step
    left = parameters - layers * (attention + 3 * hidden * inner + 2 * hidden) - hidden
    return read_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head,
            "intermediate_size": inner,
            "vocab_size": max(64, left // (2 * hidden)),
            "tie_word_embeddings": False,
        }
    )
