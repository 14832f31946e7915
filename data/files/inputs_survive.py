"""No command writes over what it reads: every output is new, or its own earlier one."""

import os
from collections.abc import Iterable, Mapping

from data.errors import DataError

Paths = Iterable[str | None]


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
                same = "" if path == source else f", which is {path},"
                raise DataError(
                    f"--{flag} would overwrite {source}{same} one of the files that --{other} "
                    f"names and that are read. Give another --{flag}."
                )


def _identity(path: str):
    try:
        stat = os.stat(path)
    except OSError:  # it isn't there, or isn't local
        return os.path.realpath(path) if "://" not in path else path
    return stat.st_dev, stat.st_ino
