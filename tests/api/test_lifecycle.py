"""What a process says on its way in and out."""

import pytest
from tests.api.conftest import in_process

from tonnage.api.app import create_app
from tonnage.api.settings import Settings
from tonnage.api.sizing import Sizing
from tonnage.api.warm import warm
from tonnage.catalog import load_catalog


@pytest.mark.parametrize(("flag", "words"), [("warming", "warming up"), ("draining", "shutting down")])
async def test_readyz_says_no_on_the_way_in_and_out(flag: str, words: str) -> None:
    app = create_app(Settings(access_log=False))
    setattr(app.runtime.lifecycle, flag, True)
    async with in_process(app) as client:
        answer = await client.get("/readyz")

    assert (503, words) == (answer.status_code, answer.json()["detail"])


async def test_a_draining_process_asks_callers_to_leave_with_every_answer() -> None:
    app = create_app(Settings(access_log=False))
    async with in_process(app) as client:
        before = await client.get("/healthz")
        app.runtime.lifecycle.draining = True
        after = await client.get("/healthz")

    assert "connection" not in before.headers
    assert "close" == after.headers["connection"]


def test_warming_up_asks_for_serving_training_and_packages() -> None:
    asked: list[str] = []

    def estimate(catalog: object, card: object, *, fetch: object = None) -> None:
        asked.append(type(card.serving).__name__ if card.serving else "Training")

    warm(Sizing(catalog=load_catalog(), estimate=estimate, fit=lambda catalog, request: asked.append("fit")))

    assert {"Vllm", "Sglang", "LlamaCpp", "Transformers", "Training", "fit"} < set(asked)
