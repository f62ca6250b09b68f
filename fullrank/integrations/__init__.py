"""Fullrank in other people's programs: retrievers for three frameworks, and a server for agents.

source.py      Source: a bundle or a service, asked alike
langchain.py   FullrankRetriever for LangChain; needs fullrank[langchain]
llamaindex.py  FullrankRetriever for LlamaIndex; needs fullrank[llamaindex]
haystack.py    FullrankRetriever for Haystack; needs fullrank[haystack]
mcp.py         fullrank mcp: search, get_document and complete as tools; needs fullrank[mcp]
"""
