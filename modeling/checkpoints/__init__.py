"""Checkpoints: reading and writing the original release's and Hugging Face's formats.

    report = load(model, "uncased_L-12_H-768_A-12/bert_model.ckpt")
    save(model, "out", vocab_file="vocab.txt")                # bert_model.ckpt, bert_config.json
    save(model, "out", vocab_file="vocab.txt", format="huggingface")    # model.safetensors, …

Other libraries' formats are read as well, see formats/. Weights go by the original's variable names
(`names.weights_by_name`). `tf1.read_bundle` and `tf1.write_bundle` read and write any dictionary of
tensors in the same file format.
"""

from modeling.checkpoints.configurations import config_of_checkpoint
from modeling.checkpoints.converting import Conversion, conversion_files, convert, spare_rows
from modeling.checkpoints.loading import LoadReport, find, load, open_contents
from modeling.checkpoints.names import ENCODER, HUGGINGFACE, TF1, weights_by_name
from modeling.checkpoints.saving import FORMATS, save, write_checkpoint
from modeling.checkpoints.vocabularies import (
    agreed_vocabulary,
    check_vocabulary,
    describe_vocabulary,
    stage_vocabulary,
)

__all__ = [
    "ENCODER",
    "FORMATS",
    "HUGGINGFACE",
    "TF1",
    "Conversion",
    "LoadReport",
    "agreed_vocabulary",
    "check_vocabulary",
    "config_of_checkpoint",
    "conversion_files",
    "convert",
    "describe_vocabulary",
    "find",
    "load",
    "open_contents",
    "save",
    "spare_rows",
    "stage_vocabulary",
    "weights_by_name",
    "write_checkpoint",
]
