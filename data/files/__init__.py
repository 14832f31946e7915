"""Files as streams: compression, lines, tables, Parquet."""
