"""`mcp`: the figures of traces for coding agents, by the Model Context Protocol on stdio."""
