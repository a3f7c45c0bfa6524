"""The system as one object: FluxMemAgent, and FluxMem for code without asyncio."""
