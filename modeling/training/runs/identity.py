"""What makes a run the run that it is: everything that changes its result, and what has changed.

`training.json` in the output folder says what its weights were trained with. Sizes and file names
are no identity; data and weights stand there by checksums of their content.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.training.runs import run_folder

FILE = "training.json"


def weights_identity(path: str | None) -> str | None:
    """32 hexadecimal digits for the content of a checkpoint in any format; None without one.

    Raises:
        ModelingError: It can't be read.
    """
    if not path:
        return None
    contents = checkpoints.open_contents(path)
    # Of a bundle, whoever wrote it, the index holds a checksum of every tensor.
    bundle = tf1.is_tf1_prefix(contents.path)
    file_name = f"{contents.path}.index" if bundle else contents.path
    digest = hashlib.blake2b(digest_size=16)
    with tf.io.gfile.GFile(file_name, "rb") as file:
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
