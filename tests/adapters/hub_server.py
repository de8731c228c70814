"""A local HTTP server that speaks the Hub's paths, and misbehaves where a test says so."""

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager

Answer = tuple[int, dict[str, str], bytes]

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 512,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
COMMIT = "0" * 39 + "1"


class HubServer:
    """Answers by path; counts and keeps what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.routes: dict[str, Callable[[], Answer]] = {}
        self.delay = 0.0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def add_repository(self, name: str, revision: str = "main", config: object = CONFIG, elements: int = 1000) -> None:
        listing = {"sha": COMMIT, "safetensors": {"parameters": {"BF16": elements}, "total": elements}}
        listing["cardData"] = {"license": "mit"}
        query = "?expand=safetensors&expand=sha&expand=cardData"
        self.serve(f"/{name}/resolve/{revision}/config.json", json.dumps(config).encode(), {"x-repo-commit": COMMIT})
        self.serve(f"/api/models/{name}/revision/{revision}{query}", json.dumps(listing).encode())

    def serve(self, path: str, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.routes[path] = lambda: (status, headers or {}, body)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                headers = {}
                while (header := (await reader.readline()).decode().strip()) != "":
                    key, _, value = header.partition(": ")
                    headers[key.lower()] = value
                self.requests.append((path, headers))
                await asyncio.sleep(self.delay)
                status, extra, body = self.routes.get(path, _missing)()
                extra.setdefault("content-length", str(len(body)))
                lines = [f"HTTP/1.1 {status} x", *(f"{k}: {v}" for k, v in extra.items() if v is not None)]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _missing() -> Answer:
    return 404, {"x-error-code": "RepoNotFound"}, b""


@asynccontextmanager
async def running_hub():
    hub = HubServer()
    server = await asyncio.start_server(hub._answer, "127.0.0.1", 0)
    hub.port = server.sockets[0].getsockname()[1]
    try:
        yield hub
    finally:
        server.close()
