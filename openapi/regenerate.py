"""
Write openapi.json and the answers of the examples anew.

Refuses to write a document that would break a client of the committed one, unless told `--breaking`.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from compatible import breaks

from tonnage.api.app import create_app
from tonnage.api.examples import ESTIMATES, FITS, MODELS
from tonnage.api.openapi import document
from tonnage.api.settings import Settings

HERE = Path(__file__).parent

STORIES: dict[str, dict[str, Any]] = {
    **{f"estimate-{name}": {"method": "POST", "path": "/estimate", "body": card["value"], "story": card["summary"]}
       for name, card in ESTIMATES.items()},
    **{f"fit-{name}": {"method": "POST", "path": "/fit", "body": card["value"], "story": card["summary"]}
       for name, card in FITS.items()},
    **{f"fit-models-{name}": {"method": "POST", "path": "/fit/models", "body": card["value"], "story": card["summary"]}
       for name, card in MODELS.items()},
    "estimate-by-query": {
        "method": "GET",
        "path": "/estimate?model=meta-llama/Llama-3.1-8B-Instruct&gpu=l40s&engine=vllm&max_model_len=8192",
        "story": "The same question from a browser or curl",
    },
    "fit-strict": {
        "method": "POST",
        "path": "/fit?strict=true",
        "body": {"model": {"parameters": 405_000_000_000}, "offer": {"gpus": ["rtx-4090"], "max_gpus": 1}},
        "story": "Nothing fits: in a pipeline that is a 409",
    },
    "typo": {
        "method": "POST",
        "path": "/estimate",
        "body": {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "vllm", "max_model_length": 8192}},
        "story": "A misspelt field is refused with the one that was meant",
    },
    "unknown-gpu": {
        "method": "POST",
        "path": "/estimate",
        "body": {"model": "meta-llama/Llama-3.1-8B-Instruct", "placement": {"gpu": "h100-sxn"}},
        "story": "An unknown id is refused with near names",
    },
    "catalog-gpu": {"method": "GET", "path": "/catalog/gpus/h100-sxm", "story": "One GPU, with where its capacity is from"},
    "catalog-page": {
        "method": "GET",
        "path": "/catalog/gpus?vendor=nvidia&min_memory_usable_bytes=80000000000&sort=id&limit=2",
        "story": "GPUs by filter, two at a time",
    },
}  # fmt: skip


async def answered(story: dict[str, Any], client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.request(story["method"], story["path"], json=story.get("body"))
    kind = answer.headers["content-type"]
    response = {"status": answer.status_code, "content_type": kind, "body": answer.json()}
    return {"story": story["story"], "request": {k: v for k, v in story.items() if k != "story"}, "response": response}


async def write_examples() -> None:
    app = create_app(Settings(access_log=False))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tonnage.test") as client:
        for name, story in STORIES.items():
            pair = await answered(story, client)
            print(f"{pair['response']['status']} {name}")
            if pair["response"]["status"] < 500:
                (HERE / "examples" / f"{name}.json").write_text(json.dumps(pair, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    committed = HERE / "openapi.json"
    new = json.loads(json.dumps(document()))
    if (
        committed.exists()
        and "--breaking" not in sys.argv
        and (found := breaks(json.loads(committed.read_text()), new))
    ):
        print("not written; this would break clients:", *found, sep="\n  ")
        return 1
    committed.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
    asyncio.run(write_examples())
    return 0


if __name__ == "__main__":
    sys.exit(main())
