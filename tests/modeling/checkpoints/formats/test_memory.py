"""Weights go through memory one by one, whatever is read and written; none has more than 1 MB.

As a program it measures what each call adds to the memory of its process, which is a fresh one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertPretrainer
from tests.benchmarks.checkpoint_formats import extra_memory
from tests.modeling.checkpoints.formats.every_format import FORMATS, write_in_formats
from tests.reference import numpy_bert
from tests.scripts import ROOT

# TensorFlow's threads and buffers; TF-Hub's graph has 16 MB.
ROOM = 32e6  # bytes

# Else malloc keeps up to 64 MB of what is freed in each of its arenas, on some machines.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def main(folder: pathlib.Path, *formats: str) -> None:
    model = BertPretrainer(BertConfig.from_json_file(folder / "config.json"))
    model.build()
    out, extra = folder / "out", {}
    for name in formats:
        extra[f"load {name}"] = extra_memory(lambda: checkpoints.load(model, folder / name))  # noqa: B023
    # The original's writer holds all at once, and TensorFlow keeps that room: it comes last.
    for target in ("huggingface", "keras_hub", "tf1"):
        for name in formats if target == "huggingface" else formats[:1]:
            extra[f"convert {name} {target}"] = extra_memory(
                lambda: checkpoints.convert(folder / name, out, target)  # noqa: B023
            )
            shutil.rmtree(out)
        extra[f"save {target}"] = extra_memory(
            lambda: checkpoints.save(model, out, format=target)  # noqa: B023
        )
        shutil.rmtree(out)
    print(json.dumps(extra))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
@pytest.mark.slow
def test_one_by_one(tmp_path):
    config = BertConfig(
        vocab_size=999,
        hidden_size=256,
        num_hidden_layers=22,
        num_attention_heads=4,
        intermediate_size=1024,
        type_vocab_size=2,
    )
    (tmp_path / "config.json").write_text(config.to_json_string())
    rng = np.random.default_rng(0)
    shapes = numpy_bert.variable_shapes(vars(config))
    weights = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    size = sum(array.nbytes for array in weights.values())
    assert size > 2 * ROOM
    write_in_formats(tmp_path, weights, config, FORMATS)
    command = [sys.executable, "-m", "tests.modeling.checkpoints.formats.test_memory"]
    done = subprocess.run(
        [*command, str(tmp_path), *FORMATS],
        cwd=ROOT,
        env=os.environ | GIVE_BACK,
        check=True,
        capture_output=True,
        text=True,
    )
    extra = json.loads(done.stdout.splitlines()[-1])
    assert len(extra) == 2 * len(FORMATS) + 5
    bounds = {case: ROOM + (size if case.endswith("tf1") else 0) for case in extra}
    assert {case: taken for case, taken in extra.items() if taken > bounds[case]} == {}


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
