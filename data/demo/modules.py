"""The modules whose docstrings the demos learn from, each for training, dev or test as a whole."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeVar

from data.pretraining.corpus import docstrings

LIBRARIES = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "matplotlib": "Matplotlib",
    "python": "Python",
}
"""Packages to their names; "python" is the standard library."""
PARTS = ("train", "dev", "test")
MOST_OF_MODULE = 60
"""Examples of one module, so that no module is much of a part."""

# Other libraries' code inside of these: a copy of Keras, among others.
_COPIES = ("tensorflow/python/keras/", "/externals/", "/_vendor", "array_api_co", "/_lib/")
_SHARE_OF_TEST, _SHARE_OF_DEV = 0.2, 0.1
_SEED = 12345


class DemoModule(NamedTuple):
    """An installed Python file.

    Attributes:
        library: A name of LIBRARIES.
        name: Its place: "numpy/linalg/" and the name of a file.
        path: Of the file.
        part: Of PARTS, which its name alone decides.
    """

    library: str
    name: str
    path: str
    part: str


class DemoExample(Protocol):
    """What a demo makes of a module; `text` is what no two examples share, `kind` a class."""

    module: str

    @property
    def text(self) -> str: ...

    @property
    def kind(self) -> str: ...


Example = TypeVar("Example", bound=DemoExample)


def installed_modules() -> list[DemoModule]:
    """All of them, in an order that mixes the libraries and is the same everywhere."""
    found = []
    packages = [name for name in LIBRARIES if name != "python"]
    for package, place, path in docstrings.source_files(_SEED, packages):
        name = f"{package}/{place}"
        if not any(copy in name for copy in _COPIES):
            found.append(DemoModule(LIBRARIES[package], name, path, part_of_module(name)))
    return found


def part_of_module(name: str) -> str:
    """Which part a module belongs to."""
    place = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64
    if place < _SHARE_OF_TEST:
        return "test"
    return "dev" if place < _SHARE_OF_TEST + _SHARE_OF_DEV else "train"


def split_examples(
    modules: Iterable[DemoModule],
    read: Callable[[DemoModule], Iterable[Example]],
    sizes: dict[str, int],
    kinds: Sequence[str] = (),
) -> dict[str, list[Example]]:
    """Examples of each part, no text twice, whatever part or module it is in.

    Args:
        modules: Read one after the other, until all parts are full.
        read: A module's examples.
        sizes: Of each part; of each kind of it if there are kinds, which are then equally many
            where the modules hold enough.
        kinds: Classes; a module of a library whose class is full isn't read.

    Returns:
        Part → examples, shuffled.
    """
    parts: dict[str, list[Example]] = {part: [] for part in PARTS}
    counts: Counter = Counter()
    seen: set[str] = set()

    def full(part: str, kind: str) -> bool:
        return counts[part, kind] >= sizes[part]

    for module in modules:
        if full(module.part, module.library if kinds else ""):
            continue
        rng = random.Random(module.name)
        examples = list(read(module))
        for example in rng.sample(examples, min(len(examples), MOST_OF_MODULE)):
            kind = example.kind if kinds else ""
            text = " ".join(example.text.lower().split())
            if text not in seen and not full(module.part, kind):
                seen.add(text)
                counts[module.part, kind] += 1
                parts[module.part].append(example)
    for part, examples in parts.items():
        random.Random(part).shuffle(examples)
    return parts
