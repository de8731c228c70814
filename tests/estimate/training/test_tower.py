"""Vision towers in a training step, beside test_tower_runs.py."""

from asking import allocated, answer, item, job

CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000,
}  # fmt: skip
LLAVA = {
    "model_type": "llava", "vision_config": CLIP,
    "text_config": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064},
}  # fmt: skip
QWEN = {
    "model_type": "qwen2_vl", "tie_word_embeddings": False,
    "text_config": {"model_type": "qwen2_vl_text", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
    "vision_config": {"model_type": "qwen2_vl", "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16,
        "mlp_ratio": 4, "patch_size": 14},
}  # fmt: skip
TOWER = 303_507_456
"""Parameters of CLIP-L/336 as LLaVA has it, its norm behind the last layer included. [unitless]"""


def tower(config=LLAVA, images=None, **training):
    """Bytes of the tower at the end of forward."""
    return item(answer(config, images=images or {}, **training), "vision_encoder", "forward")


def test_without_images_the_tower_is_an_open_question():
    assert any("state training.images" in u for u in answer(LLAVA).unknowns)
    assert not any("vision tower" in u for u in answer(LLAVA, images={}).unknowns)


def test_a_tower_keeps_as_much_per_image_whatever_else_is_there():
    one, two, four = (tower(images={"per_sample": n}) for n in (1, 2, 4))

    assert four == 2 * two == 4 * one > 0


def test_images_of_all_samples_count():
    assert tower(images={"per_sample": 4}) == tower(images={"per_sample": 1}, micro_batch_size=4)


def test_a_frozen_tower_keeps_less_than_a_checkpointed_one_and_that_less_than_one_that_keeps_all():
    free = {"gradient_checkpointing": "none"}
    frozen = tower(images={"freeze_vision_tower": True}, **free)
    checkpointed = tower(gradient_checkpointing="full")
    whole = tower(**free)

    assert frozen < whole
    assert checkpointed < whole / 3


def test_a_tower_that_rotates_takes_images_of_their_own_size():
    small, large = (tower(QWEN, images={"height": side, "width": side}) for side in (448, 896))

    assert 4 * small == large
    assert tower(images={"height": 448, "width": 448}) == tower()


def test_images_of_unknown_size_are_taken_to_fill_the_sequence_and_the_answer_says_so():
    open_ = answer(QWEN, images={"per_sample": 2}, sequence_length=2048)
    stated = answer(QWEN, images={"per_sample": 2, "height": 896, "width": 896}, sequence_length=2048)

    assert item(open_, "vision_encoder", "forward") == item(stated, "vision_encoder", "forward")
    assert any("images.height" in u for u in open_.unknowns)


def test_what_is_frozen_has_neither_gradients_nor_states():
    whole = answer(LLAVA, images={})
    frozen = answer(LLAVA, images={"freeze_vision_tower": True})

    assert TOWER == whole.model.parameters.trainable - frozen.model.parameters.trainable
    assert 4 * TOWER == item(whole, "optimizer_states") - item(frozen, "optimizer_states")


def test_frameworks_freeze_towers_by_default():
    parts = {name: job(LLAVA, framework=name).frozen_parts for name in ("transformers", "llama-factory", "ms-swift")}

    assert {
        "transformers": frozenset(),
        "llama-factory": {"vision", "projector"},
        "ms-swift": {"vision", "projector"},
    } == parts
    trained = job(LLAVA, framework="llama-factory", images={"freeze_vision_tower": False})
    assert {"projector"} == trained.frozen_parts


def test_many_images_before_a_short_text_make_the_tower_the_peak():
    found = answer(
        LLAVA, images={"per_sample": 512}, sequence_length=64, gradient_checkpointing="full", optimizer="sgd",
        cross_entropy="full",
    )  # fmt: skip

    assert "vision tower, backward" in {i.detail for p in found.phases if p.phase == "backward" for i in p.items}
    assert allocated(found, "backward") == allocated(found)
