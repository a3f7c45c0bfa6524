"""The durable side of a memory: one SQLite database as the truth, and what guards it."""
