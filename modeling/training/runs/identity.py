"""What makes a run the run that it is: everything that changes its result, and what has changed.

`training.json` in the output folder says what its weights were trained with. File names are no
identity; data and weights stand there by checksums of their content.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.checkpoints.formats.hub import HUB
from modeling.checkpoints.formats.keras_hub import KERAS_HUB
from modeling.training.runs import run_folder

FILE = "training.json"
# Formats whose weights lie in files beside the one that `find` names, as those of shards do.
_SEVERAL_FILES = (HUB, KERAS_HUB)


def weights_identity(path: str | None) -> str | None:
    """32 hexadecimal digits for the content of a checkpoint in any format; None without one.

    Raises:
        ModelingError: It can't be read.
    """
    if not path:
        return None
    contents = checkpoints.open_contents(path)
    digest = hashlib.blake2b(digest_size=16)
    # Of a bundle, whoever wrote it, the index holds a checksum of every tensor.
    bundle = tf1.is_tf1_prefix(contents.path)
    if not bundle and (contents.format in _SEVERAL_FILES or contents.path.endswith(".index.json")):
        for name, shape in sorted(contents.shapes.items()):
            digest.update(f"{name} {shape} {contents.dtypes[name]}\n".encode())
            digest.update(np.ascontiguousarray(contents.read(name)))
        return digest.hexdigest()
    with tf.io.gfile.GFile(f"{contents.path}.index" if bundle else contents.path, "rb") as file:
        while block := file.read(2**24):
            digest.update(block)
    return digest.hexdigest()


def identity_differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two identities, in words; "" if nothing does.

    An entry that only one of them has is left out: an older version didn't know of it.
    """
    now = json.loads(json.dumps(now))
    changed = [name for name in now if name in earlier and earlier[name] != now[name]]
    return "; ".join(f"{name} {_change(earlier[name], now[name])}" for name in changed)


def _change(earlier: Any, now: Any) -> str:
    if None in (earlier, now):
        return f"{'was not' if earlier is None else 'was'} given and is{' not' * (now is None)} now"
    if any(re.search(r"\b[0-9a-f]{32}\b", json.dumps(value)) for value in (earlier, now)):
        return "has another content"
    return f"was {_shown(earlier)} and is {_shown(now)} now"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"


def read_identity(directory: str) -> dict[str, Any]:
    """What the weights in an output folder were trained with; {} if it doesn't say.

    Raises:
        ModelingError: The file that says it is damaged.
    """
    path = join(directory, FILE)
    if not tf.io.gfile.exists(path):
        return {}
    return run_folder.read_run_file(
        path,
        f"so that nobody can tell whether the weights in {directory} were trained with the "
        f"settings of this command. Copy it again; or remove it to go on without the comparison.",
    )


def write_identity(directory: str, identity: Mapping[str, Any]) -> None:
    """Says from now on what the weights in an output folder are trained with."""
    with staged(directory) as temporary:
        write_staged_text(
            join(temporary, FILE), json.dumps(identity, indent=1, ensure_ascii=False) + "\n"
        )
