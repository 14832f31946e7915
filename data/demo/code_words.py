"""Which words of a sentence are code: what docstrings mark with backticks, the marks removed.

ARGUMENT is a parameter of the function (or of the class's `__init__`) whose docstring it is; VALUE
a literal such as None, 0.5 or 'same'; CLASS what is written as classes are, or a built-in type;
NAME anything else: functions, methods, attributes, modules. Signatures and marks decide, not the
sentence. Words are lower-cased for the baselines as they are for the model.
"""

import ast
import builtins
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from data.demo import modules
from data.demo.comparison import DemoData
from data.files import atomic
from data.pretraining.corpus import docstrings
from data.tasks.tagging.mistakes import tag_confusions, worst_tagged, wrong_tags

METRIC = "F1 of code words"
SETTINGS = {
    "max_seq_length": 64,
    "train_batch_size": 32,
    "learning_rate": 5e-4,
    "num_train_epochs": 3,
    "eval_steps": 400,
}
SHOWN = ("test_report.txt", "predictions.txt", "entities.jsonl", "training.png")
QUESTION = "If axis is None, the array is flattened before use, and a Tensor is returned."

_SIZES = {"train": 8000, "dev": 500, "test": 1500}
_LENGTHS = range(6, 41)
_MISTAKES = 20
# Letters of their own, so that a marked word is a word to whoever cleans docstrings.
_BEGIN, _END = "\ua7f7", "\ua7fa"
_MARKED = re.compile(r"(?<![`\w:])(`{1,2})([^`\n]+)\1(?![`_\w])")
_WORD = re.compile(rf"{_BEGIN}[^{_END}]*{_END}|-?\d+(?:\.\d+)?|[^\W\d]\w*(?:[.'-]\w+)*|\S")
_ARGUMENT_HEAD = re.compile(r"^\*{0,2}\w+(?: ?\([^)]*\))?: ")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?:\(\))?")
_UNMARKED = re.compile(r"None|True|False|\w+_\w+|\w+\.\w+")
_TYPES = {name for name in dir(builtins) if isinstance(getattr(builtins, name), type)}
_TYPES |= {"ndarray", "array_like", "callable", "string"}


class TaggedSentence(NamedTuple):
    """Words, their tags in IOB2, and the module that they are from."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    module: str

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def kind(self) -> str:
        return ""


def tagged_sentences(module: modules.DemoModule) -> list[TaggedSentence]:
    """The sentences of a module's docstrings that have a marked word and none left unmarked."""
    found = []
    for node, docstring in docstrings.documented_nodes(module.path):
        arguments = _arguments(node)
        marked = _MARKED.sub(rf"{_BEGIN}\2{_END}", docstring)
        for sentence in docstrings.docstring_sentences(marked):
            pairs = _tagged(_ARGUMENT_HEAD.sub("", sentence), arguments)
            if pairs and len(pairs) in _LENGTHS:
                found.append(TaggedSentence(*zip(*pairs, strict=True), module.name))
    return found


def _arguments(node: ast.AST) -> set[str]:
    """Names of a function's parameters, or of those that make a class."""
    if isinstance(node, ast.ClassDef):
        inner = [n for n in node.body if getattr(n, "name", "") in ("__init__", "__new__")]
        return set().union(*map(_arguments, inner))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    return {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)} - {"self", "cls"}


def _tagged(sentence: str, arguments: set[str]) -> list[tuple[str, str]] | None:
    """Words and tags; None if nothing is marked, something isn't, or code is more than a word."""
    pairs = []
    for word in _WORD.findall(sentence):
        if word[0] != _BEGIN:
            if _UNMARKED.fullmatch(word):
                return None
            pairs.append((word, "O"))
            continue
        code = word[1:-1].strip("*")
        kind = _kind(code, arguments)
        if kind is None:
            return None
        pairs.append((code.strip("'\"").removesuffix("()"), f"B-{kind}"))
    return pairs if any(tag != "O" for _, tag in pairs) else None


def _kind(code: str, arguments: set[str]) -> str | None:
    if code in arguments:
        return "ARGUMENT"
    if re.fullmatch(r"None|True|False|-?\d+(\.\d+)?|'[\w-]+'|\"[\w-]+\"", code):
        return "VALUE"
    if not _NAME.fullmatch(code):
        return None
    last = code.rpartition(".")[2]
    is_class = last in _TYPES or (last[0].isupper() and not last.isupper())
    return "CLASS" if is_class and not code.endswith("()") else "NAME"


def make_code_word_demo(folder: str) -> DemoData:
    """Writes train.txt, dev.txt and test.txt, in columns, to a folder; learns the baselines."""
    parts = modules.split_examples(modules.installed_modules(), tagged_sentences, _SIZES)
    files = {f"{part}_file": os.path.join(folder, f"{part}.txt") for part in modules.PARTS}
    for path, examples in zip(files.values(), parts.values(), strict=True):
        atomic.write_text(path, "".join(map(_columns, examples)))
    train, test = parts["train"], parts["test"]
    gold = [example.tags for example in test]
    answers = {
        "majority (no code)": [["O"] * len(tags) for tags in gold],
        "most frequent tag of the word": _memorised(train, test),
        "bag of words, two to each side": _from_neighbours(train, test),
    }
    return DemoData(
        described="Which words of a sentence are code (argument, value, class, other name), "
        "whose marks are removed",
        files=files,
        sizes={part: (len(e), len({x.module for x in e})) for part, e in parts.items()},
        groups=[example.module for example in test],
        baselines={name: _counts(gold, predicted) for name, predicted in answers.items()},
        score=lambda run: _counts(gold, list(_predicted(run))),
        question=QUESTION,
        reports=lambda run: _reports(test, list(_predicted(run))),
    )


def _columns(example: TaggedSentence) -> str:
    rows = zip(example.words, example.tags, strict=True)
    return "".join(f"{word}\t{tag}\n" for word, tag in rows) + "\n"


def _memorised(train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]) -> list[list[str]]:
    """What each word mostly was in training; O for words that weren't there."""
    counts: defaultdict[str, Counter] = defaultdict(Counter)
    for example in train:
        for word, tag in zip(example.words, example.tags, strict=True):
            counts[word.lower()][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return [[best.get(word.lower(), "O") for word in example.words] for example in test]


def _from_neighbours(
    train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]
) -> list[list[str]]:
    """A linear model on each word, its form, and two words to each side."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=200))
    model.fit(
        [features for example in train for features in _neighbours(example.words)],
        [tag for example in train for tag in example.tags],
    )
    return [list(model.predict(_neighbours(example.words))) for example in test]


def _neighbours(words: Sequence[str]) -> list[dict[str, object]]:
    padded = ["", "", *(word.lower() for word in words), "", ""]
    rows = []
    for place in range(len(words)):
        near = {str(i): padded[place + 2 + i] for i in range(-2, 3)}
        word = padded[place + 2]
        rows.append(near | {"end": word[-3:], "_": "_" in word, "0": word[0].isdigit()})
    return rows


def _predicted(run: str) -> Iterator[list[str]]:
    """The tags in the predictions.txt of a run, sentence by sentence."""
    with open(os.path.join(run, "predictions.txt"), encoding="utf-8") as file:
        for sentence in file.read().strip("\n").split("\n\n"):
            yield [line.split(" ")[-1] for line in sentence.split("\n")]


def _reports(test: Sequence[TaggedSentence], predicted: Sequence[Sequence[str]]) -> dict[str, str]:
    """Which tags are taken for which, and the sentences with most mistakes."""
    gold = [example.tags for example in test]
    kinds, matrix = tag_confusions(gold, predicted)
    rows = [[kind, *row] for kind, row in zip(kinds, matrix, strict=True)]
    worst = ""
    for number, _ in worst_tagged(gold, predicted, _MISTAKES):
        example = test[number]
        wrong = wrong_tags(example.words, example.tags, predicted[number])
        worst += f"{example.module}: {example.text}\n    {'; '.join(wrong)}\n"
    return {
        "confusion.txt": tabulate(rows, ["right ↓ answered →", *kinds], "simple") + "\n",
        "mistakes.txt": worst,
    }


def _counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> np.ndarray:
    """Right, found and gold code words of each sentence, [N, 3]; every entity is a word."""
    rows = []
    for right, answered in zip(gold, predicted, strict=True):
        pairs = list(zip(right, answered, strict=True))
        both = sum(a == b != "O" for a, b in pairs)
        # A tag that goes on an entity is none of its own.
        rows.append(
            (both, sum(b.startswith("B-") for _, b in pairs), sum(a != "O" for a, _ in pairs))
        )
    return np.array(rows, np.float64)
