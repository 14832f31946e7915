"""Opens folders with transformers: python -m …owners.open_transformers FOLDER INPUTS …

Into each folder it writes report.json and, under our names, outputs of that file's inputs.
"""

import json
import pathlib
import sys

import numpy as np
import safetensors
import torch
import transformers

from tests.modeling.checkpoints.formats.owners import hf_cases

KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")


def open_folder(folder: pathlib.Path, inputs: pathlib.Path) -> None:
    config = transformers.AutoConfig.from_pretrained(folder)
    name = config.architectures[0]
    more = {}
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        if name == "BertModel" and not any("pooler" in key for key in file.keys()):  # noqa: SIM118
            more = {"add_pooling_layer": False}
    made = getattr(transformers, name)
    model, info = made.from_pretrained(folder, output_loading_info=True, **more)
    kind = name.removeprefix("Bert")
    batch = hf_cases.batch_of(kind, np.load(inputs))
    with torch.no_grad():
        outputs = model.eval()(**{k: torch.tensor(v.astype("int64")) for k, v in batch.items()})
    arrays = {hf_cases.called(kind, key): value.numpy() for key, value in outputs.items()}
    np.savez(folder / "theirs.npz", **arrays)
    report = {
        "class": name,
        "dtype": str(model.dtype),
        "keys": [str(key) for keys in KEYS for key in info[keys]],
        "labels": list(config.id2label.values()),
    }
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    paths = [pathlib.Path(argument) for argument in sys.argv[1:]]
    for pair in zip(paths[::2], paths[1::2], strict=True):
        open_folder(*pair)
