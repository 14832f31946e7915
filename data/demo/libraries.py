"""Which library a text is from: sentences of docstrings, without the libraries' names."""

import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.demo import modules
from data.demo.comparison import DemoData
from data.demo.scores import counts_of_answers
from data.files import atomic
from data.pretraining.corpus import docstrings

METRIC = "accuracy"
SETTINGS = {
    "task_name": "delimited",
    "text_columns": "text",
    "label_column": "library",
    "id_column": "id",
    "max_seq_length": 64,
    "train_batch_size": 32,
    "learning_rate": 3e-4,
    "num_train_epochs": 2,
    "eval_steps": 400,
}
SHOWN = ("confusion_test.png", "errors_test.tsv", "class_report_test.txt", "predictions.tsv")

QUESTION = "Return a new array of given shape and type, filled with zeros."

_SIZES = {"train": 1500, "dev": 100, "test": 300}
_WORDS = range(12, 41)
# What names a library; with a dot if another name follows, which stays.
_NAMES = re.compile(
    r"(?:\w*(?:tensor ?flow|keras|numpy|scikit|sklearn|scipy|matplotlib|pyplot|python)\w*"
    r"(?:-learn)?"
    r"|(?<![^\W_])(?:tf|np|sp|plt|mpl|py|tflite)(?![^\W_]))(?:\.(?=\w))?",
    re.IGNORECASE,
)


class LibraryText(NamedTuple):
    """A text, its library, and the module that it is from."""

    text: str
    kind: str
    module: str


def without_library_names(text: str) -> str:
    """A text with "library" for each library's name, and nothing for "tf." before another name."""
    return _NAMES.sub(lambda match: "" if match[0].endswith(".") else "library", text)


def module_texts(module: modules.DemoModule) -> list[LibraryText]:
    """What a module's docstrings say, in texts of some sentences in a row, each text once."""
    texts = []
    for _, docstring in docstrings.documented_nodes(module.path):
        words: list[str] = []
        for sentence in docstrings.docstring_sentences(docstring):
            new = sentence.split()
            if len(words) + len(new) > _WORDS[-1]:
                texts.append(words)
                words = []
            words += new
        texts.append(words)
    masked = [without_library_names(" ".join(words)) for words in texts if len(words) in _WORDS]
    return [LibraryText(text, module.library, module.name) for text in dict.fromkeys(masked)]


def labelled_lines(examples: Sequence[LibraryText]) -> str:
    """Texts and their libraries as JSON lines, as SETTINGS names the fields."""
    rows = (
        {"id": f"{e.module} {number}", "text": e.text, "library": e.kind}
        for number, e in enumerate(examples)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_library_demo(folder: str) -> DemoData:
    """Writes train.jsonl, dev.jsonl and test.jsonl to a folder; learns the baselines."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    parts = modules.split_examples(
        modules.installed_modules(), module_texts, _SIZES, [*modules.LIBRARIES.values()]
    )
    files = {f"{part}_file": os.path.join(folder, f"{part}.jsonl") for part in modules.PARTS}
    for path, examples in zip(files.values(), parts.values(), strict=True):
        atomic.write_text(path, labelled_lines(examples))
    train, test = parts["train"], parts["test"]
    gold = [e.kind for e in test]
    words = make_pipeline(
        TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
    )
    words.fit([e.text for e in train], [e.kind for e in train])

    def counts(answers) -> np.ndarray:
        return counts_of_answers(np.array(gold) == np.array(answers))

    return DemoData(
        described=f"Which of {len(set(gold))} libraries a text is from, whose names are masked",
        files=files,
        sizes={part: (len(e), len({x.module for x in e})) for part, e in parts.items()},
        groups=[e.module for e in test],
        baselines={
            "majority": counts([max(sorted(set(gold)), key=gold.count)] * len(gold)),
            "bag of words": counts(words.predict([e.text for e in test])),
        },
        score=lambda run: counts(_predicted(run)),
        question=QUESTION,
    )


def _predicted(run: str) -> list[str]:
    """The labels in the predictions.tsv of a run."""
    with open(os.path.join(run, "predictions.tsv"), encoding="utf-8") as file:
        header, *rows = (line.rstrip("\n").split("\t") for line in file)
    return [row[header.index("label")] for row in rows]
