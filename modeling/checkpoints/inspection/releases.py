"""The checkpoints that the original released: where they are, and by what they are known.

Checksums are SHA-256, of the unpacked files, as the downloader of NVIDIA's DeepLearningExamples
for BERT in TensorFlow checks them. modeling/checkpoints/README.md has the same as a table.
"""

import dataclasses
import hashlib
import os

import tensorflow as tf

from modeling.sizes import SMALL_SIZES

BASE_URL = "https://storage.googleapis.com/bert_models/"
GETTING_WEIGHTS = 'modeling/checkpoints/README.md, "Getting weights"'
"""Where documents say it, for messages."""
_DATA = ".data-00000-of-00001"
_STEP = 1 << 20  # bytes
# Of folders, what tells that texts were lower-cased.
_LOWER_CASED = ("uncased", "wwm_uncased", "multilingual", "chinese")


@dataclasses.dataclass(frozen=True)
class Release:
    """One of the original's releases.

    Attributes:
        name: As its README calls it.
        path: Of the zip archive, below `BASE_URL`.
        parameters: Of its encoder with the pooler, and of both pre-training heads.
        weights: Checksum of `bert_model.ckpt.data-00000-of-00001`; "" where none is known.
        vocabulary: Checksum of `vocab.txt`; "" where none is known.
    """

    name: str
    path: str
    parameters: int
    weights: str = ""
    vocabulary: str = ""

    @property
    def folder(self) -> str:
        """What its archive unpacks to."""
        return os.path.basename(self.path).removesuffix(".zip")

    @property
    def weights_bytes(self) -> int:
        """Size of the weights' file, which holds nothing but them in float32."""
        return 4 * self.parameters


_UNCASED = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_CASED = "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02"
RELEASES = (
    Release(
        "BERT-Base, Uncased",
        "2018_10_18/uncased_L-12_H-768_A-12.zip",
        110_106_428,
        "58580dc5e0bf0ae0d2efd51d0e8272b2f808857f0a43a88aaf7549da6d7a8a84",
        _UNCASED,
    ),
    Release(
        "BERT-Large, Uncased",
        "2018_10_18/uncased_L-24_H-1024_A-16.zip",
        336_226_108,
        "bc6b3363e3be458c99ecf64b7f472d2b7c67534fd8f564c0556a678f90f4eea1",
        _UNCASED,
    ),
    Release(
        "BERT-Base, Cased",
        "2018_10_18/cased_L-12_H-768_A-12.zip",
        108_932_934,
        "734d5a1b68bf98d4e9cb6b6692725d00842a1937af73902e51776905d8f760ea",
        _CASED,
    ),
    Release(
        "BERT-Large, Cased",
        "2018_10_18/cased_L-24_H-1024_A-16.zip",
        334_661_958,
        "6ff33640f40d472f7a16af0c17b1179ca9dcc0373155fb05335b6a4dd1657ef0",
        _CASED,
    ),
    Release(
        "BERT-Base, Multilingual Cased",
        "2018_11_23/multi_cased_L-12_H-768_A-12.zip",
        178_566_653,
        "55b8a2df41f69c60c5180e50a7c31b7cdf6238909390c4ddf05fbc0d37aa1ac5",
        "fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c",
    ),
    Release(
        "BERT-Base, Multilingual Uncased",
        "2018_11_03/multilingual_L-12_H-768_A-12.zip",
        168_055_961,
        "3cd83912ebeb0efe2abf35c9f1d5a515d8e80295e61c49b75c8853f756658429",
        "87b44292b452f6c05afa49b2e488e7eedf79ea4f4c39db6f2f4b37764228ef3f",
    ),
    Release(
        "BERT-Base, Chinese",
        "2018_11_03/chinese_L-12_H-768_A-12.zip",
        102_882_442,
        "756699356b78ad0ef1ca9ba6528297bcb3dd1aef5feadd31f4775d7c7fc989ba",
        "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c",
    ),
    Release(
        "BERT-Large, Uncased, whole words masked",
        "2019_05_30/wwm_uncased_L-24_H-1024_A-16.zip",
        336_226_108,
    ),
    Release(
        "BERT-Large, Cased, whole words masked",
        "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip",
        334_661_958,
    ),
)


def released_weights(prefix: str) -> Release | None:
    """The release whose weights a TF1 bundle holds, to the last bit; None if it is none of them.

    Reads the file only where its size is that of one.
    """
    path = prefix + _DATA
    if not tf.io.gfile.exists(path):
        return None
    size = tf.io.gfile.stat(path).length
    alike = [one for one in RELEASES if one.weights and one.weights_bytes == size]
    checksum = _sha256(path) if alike else ""
    return next((one for one in alike if one.weights == checksum), None)


def released_vocabulary(path: str) -> list[Release]:
    """The releases that came with this vocabulary, byte for byte."""
    checksum = _sha256(path)
    return [one for one in RELEASES if one.vocabulary == checksum]


def hint_of_release(path: str | os.PathLike) -> str:
    """A sentence for whoever names a checkpoint that isn't there: where such a one can be had."""
    parts = os.fspath(path).replace("\\", "/").split("/")
    for one in RELEASES:
        if one.folder in parts:
            return f"{one.name} is released as {BASE_URL}{one.path}; see {GETTING_WEIGHTS}."
    for layers, hidden in SMALL_SIZES:
        name = f"uncased_L-{layers}_H-{hidden}_A-{hidden // 64}"
        if name in parts:
            return f"{name} is released as {BASE_URL}2020_02_20/{name}.zip; see {GETTING_WEIGHTS}."
    return f"Where released weights are is told in {GETTING_WEIGHTS}."


def case_of_release(path: str | os.PathLike | None) -> bool | None:
    """Whether a model lower-cases, by the name of its folder: one released with the paper.

    Args:
        path: …/NAME/bert_model.ckpt, or …/NAME.
    """
    parts = [part for part in os.fspath(path or "").split("/") if part]
    if parts and parts[-1].startswith("bert_model.ckpt"):
        parts.pop()
    known = [one.folder for one in RELEASES if parts and one.folder == parts[-1]]
    return known[0].startswith(_LOWER_CASED) if known else None


def _sha256(path: str) -> str:
    checksum = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while part := file.read(_STEP):
            checksum.update(part)
    return checksum.hexdigest()
