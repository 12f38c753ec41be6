"""The tool-use gym: questions that are answered by one tool call a step, documents and HTTP APIs being the tools."""
