"""Opens presets with KerasHub: python -m …owners.open_keras_hub FOLDER INPUTS …

Into each folder it writes report.json and, under our names, outputs of that file's inputs. Where a
folder has texts.json, its tokenizer and its task's preprocessor are asked too.
"""

import os

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

import json
import pathlib
import sys

import keras_hub
import numpy as np


def open_folder(folder: pathlib.Path, inputs: pathlib.Path) -> None:
    given = np.load(inputs)
    batch = {
        "token_ids": given["input_ids"],
        "segment_ids": given["segment_ids"],
        "padding_mask": given["input_mask"],
    }
    task = folder / "task.json"
    kind = json.loads(task.read_text())["class_name"] if task.exists() else "BertBackbone"
    model = getattr(keras_hub.models, kind).from_preset(str(folder))
    backbone = keras_hub.models.BertBackbone.from_preset(str(folder))
    arrays = {name: np.asarray(value) for name, value in backbone(batch).items()}
    report = {"class": type(model).__name__, "tokens": None, "packed": None}
    if kind == "BertTextClassifier":
        arrays["logits"] = np.asarray(model(batch))
    if kind == "BertMaskedLM":
        rows, length = batch["token_ids"].shape
        every = np.tile(np.arange(length), [rows, 1])
        arrays["masked_lm_logits"] = np.asarray(model({**batch, "mask_positions": every}))
    texts = folder / "texts.json"
    if texts.exists():
        texts = json.loads(texts.read_text())
        tokenizer = keras_hub.models.BertTokenizer.from_preset(str(folder))
        report["tokens"] = [np.asarray(tokenizer(text)).tolist() for text in texts]
        preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(str(folder))
        report["packed"] = np.asarray(preprocessor(texts)["token_ids"]).tolist()
        arrays["of_texts"] = np.asarray(model.predict(texts, verbose=0)) if task.exists() else 0
    np.savez(folder / "theirs.npz", **arrays)
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    paths = [pathlib.Path(argument) for argument in sys.argv[1:]]
    for pair in zip(paths[::2], paths[1::2], strict=True):
        open_folder(*pair)
