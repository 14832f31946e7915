"""BERT in Keras 3: layers, checkpoints, training, serving. Knows tensors, never files of text."""
