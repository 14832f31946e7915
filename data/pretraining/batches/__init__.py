"""Records, or text, to training batches in tf.data.

pipeline.py        from records, for each objective
text_stream.py     from raw text, without records
graph_masking.py   masks drawn while training
packing.py         several short instances in a row
packed_rows.py     how rows are filled with them
"""
