"""No command writes over what it reads: every output is new, or its own earlier one."""

import glob
import os
from collections.abc import Iterable, Mapping

import tensorflow as tf

from data.errors import DataError
from data.files.text_files import placed_file

Paths = Iterable[str | None]
_WEIGHTS = ("*.index", "*.data-*", "*.safetensors", "*.safetensors.index.json")


def check_inputs_survive(inputs: Mapping[str, Paths], outputs: Mapping[str, Paths]) -> None:
    """Refuses outputs that are inputs too, by whatever path: relative, a symbolic or hard link.

    Args:
        inputs: Flag → files that the command reads. None, "" and what isn't there are passed over.
        outputs: Flag → files that it writes.

    Raises:
        DataError: Names both flags.
    """
    read = {}
    for flag, paths in inputs.items():
        read |= {_identity(path): (flag, path) for path in paths if path}
    for flag, paths in outputs.items():
        for path in filter(None, paths):
            other, source = read.get(_identity(path), (None, None))
            if other:
                same = "" if path == source else f" (it is the same file as {path})"
                raise DataError(
                    f"--{flag} would overwrite {source}{same}, which is one of the input files: "
                    f"--{other} names it. Give another --{flag}{_without(flag, other)}."
                )


def _without(flag: str, other: str) -> str:
    """Weights in the output folder are read without being named."""
    is_weights = flag == "output_dir" and other == "init_checkpoint"
    return f", or leave out --{other}: weights in --{flag} are read in any case" * is_weights


def input_files(values) -> dict[str, list[str]]:
    """The files that the flags of a script name to read from: of all NAME_file, and the weights.

    Args:
        values: The flag values; what names files may be a list, with commas, or a pattern.
    """
    files = {}
    for name in values:
        if name.endswith("_file") and not name.startswith("output"):
            value = values[name].value or []
            patterns = value.split(",") if isinstance(value, str) else value
            folder = values.data_dir if "data_dir" in values else None
            paths = [placed_file(folder, pattern.strip()) for pattern in patterns]
            files[name] = [found for path in paths for found in [path, *_matches(path)]]
    weights = (values.init_checkpoint if "init_checkpoint" in values else None) or ""
    return files | {"init_checkpoint": _weights_files(weights) if weights else []}


def _weights_files(path: str) -> list[str]:
    """Of a checkpoint: a prefix, a file, or a folder that holds one of them."""
    here = glob.escape(path)
    # Of an index, the files that it names lie beside it.
    folder = os.path.dirname(here) if path.endswith(".index.json") else here
    patterns = [f"{here}.data-*", *(os.path.join(folder, name) for name in _WEIGHTS)]
    return [path, f"{path}.index", *(found for pattern in patterns for found in glob.glob(pattern))]


def _matches(pattern: str) -> list[str]:
    try:
        return tf.io.gfile.glob(pattern)
    except tf.errors.OpError:  # whoever reads it will say why
        return []


def _identity(path: str):
    try:
        stat = os.stat(path)
    except OSError:  # it isn't there, or isn't local
        return os.path.realpath(path) if "://" not in path else path
    return stat.st_dev, stat.st_ino
