"""`tonnage mcp` speaks the Model Context Protocol: hello, the list of tools, calls, and errors that say what is wrong."""

import importlib.util
import json
import os
import sys

import jsonschema
import pytest

from tonnage.catalog import load_catalog
from tonnage.cli.mcp import PROTOCOLS, Server

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(scope="module")
def server():
    return Server(load_catalog())


@pytest.fixture(scope="module")
def call(server):
    def called(tool, **arguments):
        params = {"name": tool, "arguments": arguments}
        return server.reply(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}))

    return called


def test_a_session_over_standard_input_and_output(process):
    asked = {"model": LLAMA, "engine": "vllm", "max_model_len": 8192, "gpu": "l40s"}
    messages = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}},
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "estimate", "arguments": asked}},
    ]

    ended = process("mcp", input="".join(json.dumps({"jsonrpc": "2.0", **m}) + "\n" for m in messages))
    hello, tools, answer = map(json.loads, ended.out.splitlines())

    assert (0, "") == (ended.code, ended.err)
    assert "2025-06-18" == hello["result"]["protocolVersion"]
    assert ["estimate", "fit", "models", "catalog"] == [tool["name"] for tool in tools["result"]["tools"]]
    assert "met" == answer["result"]["structuredContent"]["verdict"]
    assert "verdict    met" in answer["result"]["content"][0]["text"]


async def test_the_protocols_own_client_gets_answers(repository):
    """As an assistant starts it, from the configuration of the examples."""
    if importlib.util.find_spec("mcp") is None:
        pytest.skip("not run: the protocol's client is not installed (make test-extras)")
    from mcp import ClientSession, StdioServerParameters, stdio_client

    text = (repository / "examples" / "assistants" / "mcp.json").read_text()
    configured = json.loads(text)["mcpServers"]["tonnage"]
    assert "tonnage" == configured["command"]
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "tonnage", *configured["args"]], env=dict(os.environ)
    )
    asked = {"model": LLAMA, "engine": "vllm", "max_model_len": 8192, "gpu": "l40s"}

    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        hello = await client.initialize()
        tools = await client.list_tools()
        answer = await client.call_tool("estimate", asked)
        refused = await client.call_tool("estimate", {"model": "nobody/nothing"})

    assert "tonnage" == hello.server_info.name
    assert ["estimate", "fit", "models", "catalog"] == [tool.name for tool in tools.tools]
    assert (False, "met") == (bool(answer.is_error), answer.structured_content["verdict"])
    assert refused.is_error


@pytest.mark.parametrize("arguments", [[1], "gpu", 0])
def test_arguments_that_are_no_object_are_said_to_be_none(server, arguments):
    params = {"name": "estimate", "arguments": arguments}
    reply = server.reply(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))

    assert -32602 == reply["error"]["code"]
    assert "arguments must be an object" in reply["error"]["message"]


def test_an_unknown_revision_gets_the_newest_known(server):
    hello = server.reply(
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}}'
    )

    assert PROTOCOLS[0] == hello["result"]["protocolVersion"]


def test_tools_are_described_by_valid_schemas_that_fit_their_calls(server):
    tools = server.reply('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')["result"]["tools"]
    calls = {
        "estimate": {
            "model": LLAMA,
            "engine": "vllm",
            "max_model_len": 8192,
            "enforce_eager": True,
            "reserve": "6 GiB",
        },
        "fit": {"model.parameters": 7_000_000_000, "reserve": "6 GiB", "gpus": ["rtx-4090"], "duration": "3 days"},
        "models": {"gpu": "l4", "engine": "vllm", "q": "qwen3-8b"},
        "catalog": {"kind": "gpus", "q": "l40"},
    }

    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.validate(calls[tool["name"]], tool["inputSchema"])


def test_a_fit_names_what_to_confirm(call):
    result = call("fit", **{"model.parameters": 7_000_000_000, "reserve": "6 GiB", "providers": ["iteragpu"]})["result"]

    assert "47.14 USD" in call("fit", **{
        "model.parameters": 7_000_000_000, "reserve": "6 GiB", "providers": ["iteragpu"], "duration": "3 days",
    })["result"]["content"][0]["text"]  # fmt: skip
    assert result["structuredContent"]["confirmations"]


def test_the_catalogue_lists_and_shows(call):
    assert ["l40", "l40s"] == call("catalog", kind="gpus", q="l40")["result"]["structuredContent"]["ids"]
    assert "l4" == call("catalog", kind="gpus", name="NVIDIA L4")["result"]["structuredContent"]["id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "nobody/nothing"}, "unknown model"),
        ({"model": LLAMA, "gpu": "h100-sxn"}, "did you mean h100-sxm"),
        ({"model": LLAMA, "max_model_len": "many"}, "max_model_len"),
        ({"modle": LLAMA}, "did you mean model"),
    ],
)
def test_what_is_wrong_with_a_question_is_told_to_the_assistant(call, arguments, said):
    result = call("estimate", **arguments)["result"]

    assert result["isError"] is True
    assert said in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[" * 100_000, -32700),
        ("[]", -32600),
        ('{"jsonrpc": "2.0", "id": 1}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}', -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602),
        (
            '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "catalog", "arguments": {"kind": "x"}}}',
            -32602,
        ),
    ],
)
def test_messages_that_break_the_protocol_get_its_errors(server, line, code):
    assert code == server.reply(line)["error"]["code"]


def test_notifications_get_no_answer(server):
    assert server.reply('{"jsonrpc": "2.0", "method": "notifications/cancelled"}') is None
