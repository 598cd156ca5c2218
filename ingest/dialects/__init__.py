"""What spans say about model calls, in whatever convention they say it -> one record of facts each.

    facts       LlmFacts, the record; Dialect, a convention as a table
    slots       attribute keys, and where their values go
    registry    the conventions known, and `read`, which applies them to a span
    messages    prompts and answers in their many shapes -> canonical messages (parts: one of them; media: its bytes)

A convention is one module with a `DIALECT`, named in the registry.
"""
