"""What an argument is, what is returned, when an error is raised: questions about docstrings.

A context is the first sentences of what a docstring says of its arguments, of what it returns and
of its errors, in its order, the names and headings removed: "The axis to sum over. A tensor of the
same type." Each sentence answers one question: "What is axis of reduce_sum?", "What does reduce_sum
return?", "When does reduce_sum raise ValueError?". No sentence is the answer of two questions.
"""

import ast
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data.demo import modules
from data.demo.comparison import DemoData
from data.demo.scores import counts_of_answers
from data.files import atomic
from data.pretraining.corpus import docstrings
from data.tasks.questions.metrics import score_answer
from data.tasks.questions.mistakes import worst_answers

METRIC = "F1"
SETTINGS = {
    "max_seq_length": 96,
    "doc_stride": 32,
    "max_query_length": 24,
    "max_answer_length": 24,
    "train_batch_size": 32,
    "learning_rate": 5e-4,
    "num_train_epochs": 5,
}
SHOWN = ("predictions.json", "nbest_predictions.json", "eval_results.json")
QUESTION = (
    "What does reduce_sum return?\tThe tensor to reduce. The dimensions to reduce. A name for the "
    "operation. The reduced tensor, of the same type as the input."
)

_SIZES = {"train": 8000, "dev": 500, "test": 1000}
_MOST_WORDS = 40
_MISTAKES = 20
_FEWEST_PARTS = 3
_ARGUMENT, _RETURN, _ERROR = (
    "What is {1} of {0}?",
    "What does {0} return?",
    "When does {0} raise {1}?",
)
_SECTIONS = {
    **dict.fromkeys(("Args", "Arguments", "Parameters"), _ARGUMENT),
    "Returns": _RETURN,
    "Raises": _ERROR,
}
_GOOGLE = re.compile(r"( *)(Args|Arguments|Returns|Raises):\s*")
_NUMPY = re.compile(r"Parameters|Returns|Raises")
_RULE = re.compile(r"-{3,}\s*")
_GOOGLE_ITEM = re.compile(r"[*`]*([\w.]+)`*(?: ?\([^)]*\))?:(?:\s+(.*)|$)")
_NUMPY_ITEM = re.compile(r"[*`]*([\w.]+)\b")


class PartQuestion(NamedTuple):
    """A question, its context's sentences, which of these answers it, and the module."""

    question: str
    sentences: tuple[str, ...]
    answer: int
    module: str

    @property
    def text(self) -> str:
        return self.sentences[self.answer]

    @property
    def kind(self) -> str:
        return ""

    @property
    def context(self) -> str:
        return " ".join(f"{sentence}." for sentence in self.sentences)

    @property
    def start(self) -> int:
        """Where the answer begins, in characters."""
        return sum(len(sentence) + 2 for sentence in self.sentences[: self.answer])


def module_questions(module: modules.DemoModule) -> list[PartQuestion]:
    """The questions that a module's docstrings answer."""
    found = []
    for node, docstring in docstrings.documented_nodes(module.path):
        if isinstance(node, ast.Module):
            continue
        asked: dict[str, str] = {}
        for form, name, text in described_parts(docstring):
            sentences = docstrings.docstring_sentences(text)
            sentence = sentences[0].rstrip(".:; ") if sentences else ""
            if sentence and sentence not in asked.values():
                asked.setdefault(form.format(node.name, name), sentence)
        kept, words = [], 0
        for question, sentence in asked.items():
            words += len(sentence.split())
            if words <= _MOST_WORDS:
                kept.append((question, sentence))
        if len(kept) >= _FEWEST_PARTS:
            questions, answers = zip(*kept, strict=True)
            found += [PartQuestion(q, answers, n, module.name) for n, q in enumerate(questions)]
    return found


def described_parts(docstring: str) -> Iterator[tuple[str, str, str]]:
    """Form of the question, name and description of what a docstring's sections list.

    Sections are those of Google's style ("Args:" and what is indented below) and of NumPy's
    ("Parameters" above a rule, names of arguments and what is indented below them).
    """
    lines = docstring.expandtabs(4).split("\n")
    first, rest = lines[0], lines[1:]
    margin = min((_indent(line) for line in rest if line.strip()), default=0)
    lines = [first.lstrip(), *(line[margin:] for line in rest), ""]
    for number, line in enumerate(lines):
        google, below = _GOOGLE.fullmatch(line), lines[number + 1 : number + 2]
        if google:
            block = _until(lines[number + 1 :], lambda text, g=google: _indent(text) <= len(g[1]))
            yield from _items(_SECTIONS[google[2]], block, _GOOGLE_ITEM)
        elif _NUMPY.fullmatch(line.rstrip()) and below and _RULE.fullmatch(below[0]):
            block = lines[number + 2 :]
            rules = [n for n, text in enumerate(block) if _RULE.fullmatch(text)]
            yield from _items(
                _SECTIONS[line.rstrip()], block[: rules[0] - 1] if rules else block, _NUMPY_ITEM
            )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _until(lines: Sequence[str], ends) -> list[str]:
    """Lines up to one that isn't blank and ends the block."""
    kept = []
    for line in lines:
        if line.strip() and ends(line):
            break
        kept.append(line)
    return kept


def _items(form: str, block: Sequence[str], item: re.Pattern) -> Iterator[tuple[str, str, str]]:
    """What a section lists; of what is returned only the first."""
    base = min((_indent(line) for line in block if line.strip()), default=0)
    if form == _RETURN and item is _GOOGLE_ITEM:
        yield form, "", "\n".join(block)
        return
    name, text = "", []
    for line in [*block, " " * base + "end:"]:
        if line.strip() and _indent(line) == base:
            if name and text:
                yield form, name, "\n".join(text)
                if form == _RETURN:
                    return
            match = item.match(line.strip())
            name = match[1] if match else ""
            text = [match[2]] if match and item is _GOOGLE_ITEM and match[2] else []
        else:
            text.append(line.strip())


def make_argument_demo(folder: str) -> DemoData:
    """Writes train.json, dev.json and test.json, in SQuAD's form, to a folder; learns baselines."""
    parts = modules.split_examples(modules.installed_modules(), module_questions, _SIZES)
    paths = {part: os.path.join(folder, f"{part}.json") for part in modules.PARTS}
    for part, examples in parts.items():
        atomic.write_text(paths[part], json.dumps({"data": _squad(part, examples)}, indent=1))
    train, test = parts["train"], parts["test"]
    choices = {
        "first sentence": [0] * len(test),
        "most words in common": _overlapping(train, test),
        "bag of pairs of words": _from_pairs(train, test),
    }

    def counts(texts: Sequence[str]) -> np.ndarray:
        return counts_of_answers([_f1(q, text) for q, text in zip(test, texts, strict=True)])

    return DemoData(
        described="Which part of a docstring answers a question (the first three systems are told "
        "where sentences begin and end)",
        files={"train_file": paths["train"], "predict_file": paths["test"]},
        sizes={part: (len(e), len({x.module for x in e})) for part, e in parts.items()},
        groups=[question.module for question in test],
        baselines={
            name: counts([q.sentences[n] for q, n in zip(test, chosen, strict=True)])
            for name, chosen in choices.items()
        },
        score=lambda run: counts(_predicted(run)),
        question=QUESTION,
        reports=lambda run: {"mistakes.txt": _mistakes(test, _predicted(run))},
    )


def _squad(part: str, questions: Sequence[PartQuestion]) -> list[dict]:
    return [
        {
            "title": question.module,
            "paragraphs": [
                {
                    "context": question.context,
                    "qas": [
                        {
                            "id": f"{part} {number}",
                            "question": question.question,
                            "answers": [{"text": question.text, "answer_start": question.start}],
                        }
                    ],
                }
            ],
        }
        for number, question in enumerate(questions)
    ]


def _predicted(run: str) -> list[str]:
    """The answers in the predictions.json of a run, which has the order of the questions."""
    with open(os.path.join(run, "predictions.json"), encoding="utf-8") as file:
        return list(json.load(file).values())


def _f1(question: PartQuestion, answered: str) -> float:
    return score_answer(answered, [question.text], version_2=False)[1]


def _mistakes(test: Sequence[PartQuestion], answered: Sequence[str]) -> str:
    """The questions whose answers have least in common with the right ones."""
    f1 = [_f1(*pair) for pair in zip(test, answered, strict=True)]
    return "".join(
        f"{test[n].module}: {test[n].question}\n    right: {test[n].text}\n"
        f"    answered: {answered[n]}\n    in: {test[n].context}\n"
        for n in worst_answers(f1, np.ones(len(f1)), _MISTAKES)
    )


def _overlapping(train: Sequence[PartQuestion], test: Sequence[PartQuestion]) -> list[int]:
    """The sentence that is nearest to the question by its words, rare ones counting more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"[^\W_]+")
    words.fit([q.context for q in train])
    return [
        int(np.argmax((words.transform(q.sentences) @ words.transform([q.question]).T).toarray()))
        for q in test
    ]


def _from_pairs(train: Sequence[PartQuestion], test: Sequence[PartQuestion]) -> list[int]:
    """The sentence that a linear model on pairs of words, one of each side, gives most."""
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        FeatureHasher(2**18, input_type="string"), LogisticRegression(C=10, max_iter=50)
    )
    model.fit(
        [_pairs(q, number) for q in train for number in range(len(q.sentences))],
        [number == q.answer for q in train for number in range(len(q.sentences))],
    )
    return [
        int(np.argmax(model.decision_function([_pairs(q, n) for n in range(len(q.sentences))])))
        for q in test
    ]


def _pairs(question: PartQuestion, number: int) -> list[str]:
    asked, said = (
        set(re.findall(r"[^\W_]+", text.lower()))
        for text in (question.question, question.sentences[number])
    )
    places = [str(number), str(number - len(question.sentences))]
    both = [f"both {word}" for word in asked & said]
    return [f"{a} {b}" for a in asked for b in (*said, *places)] + both + ["same"] * len(both)
