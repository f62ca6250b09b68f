"""Run the example chains of LangChain, LlamaIndex, Haystack and MCP; print the ids that each found as JSON.

python chains.py SOURCE QUERY FILTER
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

SOURCE, QUERY, FILTER = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
Ids = list[str]


def langchain() -> list[Ids]:
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    from fullrank.integrations.langchain import FullrankRetriever

    retriever = FullrankRetriever(at=SOURCE, k=3, filter=FILTER)
    read: list[Ids] = []

    def format_docs(documents: list[Document]) -> str:
        read.append([str(document.id) for document in documents])
        assert all(document.page_content for document in documents)
        return "\n\n".join(document.page_content for document in documents)

    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    model = FakeListChatModel(responses=["An answer."])
    context = {"context": retriever | format_docs, "question": RunnablePassthrough()}
    chain: Any = context | prompt | model | StrOutputParser()
    assert chain.invoke(QUERY) == "An answer."
    assert asyncio.run(chain.ainvoke(QUERY)) == "An answer."
    assert len(retriever.invoke(QUERY, k=1)) == 1
    assert retriever.invoke(" ") == []
    return read


def llamaindex() -> list[Ids]:
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from fullrank.integrations.llamaindex import FullrankRetriever

    retriever = FullrankRetriever(SOURCE, similarity_top_k=3, filter=FILTER)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    answers = [engine.query(QUERY), asyncio.run(engine.aquery(QUERY))]
    assert all(
        str(answer).count(node.text) == 1 for answer in answers for node in answer.source_nodes
    )
    return [[node.node_id for node in answer.source_nodes] for answer in answers]


def haystack() -> list[Ids]:
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder

    from fullrank.integrations.haystack import FullrankRetriever

    template = "{% for d in documents %}{{ d.content }}\n{% endfor %}Question: {{ question }}"
    pipeline = Pipeline()
    pipeline.add_component("retriever", FullrankRetriever(SOURCE, top_k=3, filters=FILTER))
    pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    allowed = ["fullrank.integrations.haystack"]
    saved = Pipeline.loads(pipeline.dumps(), allowed_modules=allowed)
    asked = {"retriever": {"query": QUERY}, "prompt": {"question": QUERY}}
    runs = [
        saved.run(asked, include_outputs_from={"retriever"}),
        asyncio.run(pipeline.run_async(asked, include_outputs_from={"retriever"})),
    ]
    assert all(QUERY in run["prompt"]["prompt"] for run in runs)
    return [[document.id for document in run["retriever"]["documents"]] for run in runs]


def mcp() -> list[Ids]:
    from mcp import Client, StdioServerParameters

    command = str(Path(sys.executable).with_name("fullrank"))

    async def ask() -> list[Ids]:
        async with Client(StdioServerParameters(command=command, args=["mcp", SOURCE])) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"search", "get_document", "complete"}
            arguments = {"query": QUERY, "limit": 3, "filter": FILTER}
            found: Any = await client.call_tool("search", arguments)
            ids = [hit["id"] for hit in found.structured_content["result"]]
            document: Any = await client.call_tool("get_document", {"id": ids[0]})
            title = document.structured_content["title"]
            completed: Any = await client.call_tool("complete", {"prefix": title[:-1]})
            assert title in completed.structured_content["result"]
            missing: Any = await client.call_tool("get_document", {"id": "no such document"})
            assert missing.is_error
            assert "no such document" in missing.content[0].text
            return [ids]

    return asyncio.run(ask())


chains = (langchain, llamaindex, haystack, mcp)
sys.stdout.write(json.dumps({chain.__name__: chain() for chain in chains}))
