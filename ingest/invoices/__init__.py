"""What a provider or gateway says it charged -> one table of days, models, token classes, tokens and USD.

    records     Invoice, the table; Terms, what the reader of a file is told
    cells       numbers, days and moments as files write them
    source      a file's records: JSON, JSON lines, CSV, TSV or Parquet, each also .gz
    registry    the formats known, and `read`, which picks one

A format is one module with `recognises` and `read`, named in the registry.
"""
