"""A tiny export of each family that the page knows: random weights, words of English."""

import functools
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

from data.tasks.questions.windows import make_windows
from data.tasks.tagging import inputs as tag_inputs
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from data.vectors.serving_inputs import vector_serving_inputs
from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.models import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQuestionAnswering,
    BertTagger,
)
from modeling.serving.export import Export
from modeling.serving.pretraining import export_pretrainer
from modeling.serving.question_answering import export_question_answering
from modeling.serving.sentences import export_sentence_model
from modeling.serving.tagging import export_tagger
from modeling.serving.vectors import export_embeddings
from modeling.vectors.vector_models import BertVectors

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = ["the", "of", "and", "was", "in", "it", "is", "paris", "tower", "door", "film", "good"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = [*SPECIAL, *WORDS, *"abc.,?!'-<>&/", *LETTERS[3:], *(f"##{letter}" for letter in LETTERS)]
LENGTH = 64
ASKED = ("serving_default", "n_best")
QUICK = ("classes", "number", "choices", "tags")
"""For tests that aren't slow: making all exports takes half a minute."""
FAMILIES = (*QUICK, "labels", "pair", "questions", "unanswered", "masks", "next", "similar")
HOSTILE_LABEL = "<img src=x onerror=alert(1)>"


def _config(**changes) -> BertConfig:
    return BertConfig(
        len(VOCAB),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        **changes,
    )


def _randomised(model: keras.Model) -> keras.Model:
    model.build()
    rng = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.5, variable.shape))
    return model


class _PageExport(Export):
    """Without the signatures that the page doesn't ask, each of which takes seconds to make."""

    def write(self, servable, signatures, texts=None) -> str:
        asked = {name: signatures[name] for name in signatures if name in ASKED}
        return super().write(servable, asked, texts)


def makers(folder: pathlib.Path) -> dict[str, Callable[[], str]]:
    """Family, or name of a variant of it → makes its export, and gives the path."""
    tokenizer = Tokenizer.from_vocab(VOCAB)
    masking = Tokenizer.from_vocab(VOCAB, never_split=["[MASK]"])

    def export(name: str) -> Export:
        return _PageExport(str(folder / name / "export"), {}, None, LENGTH)

    def rows(tokens: Tokenizer) -> Callable:
        return functools.partial(build_inputs, tokens, max_seq_length=LENGTH, pad_to="longest")

    def sentences(name: str, kind: str, labels: Sequence[str], pairs: bool = False) -> str:
        model = _randomised(BertClassifier(_config(), len(labels) or 1))
        return export_sentence_model(model, export(name), kind, rows(tokenizer), labels, pairs)

    def choices() -> str:
        model = _randomised(BertMultipleChoice(_config()))

        def preprocess(context, choices):
            return build_choice_inputs(tokenizer, context, choices, LENGTH, "longest")

        return export_sentence_model(model, export("choices"), "choices", preprocess, [], False)

    def questions(name: str, version_2: bool) -> str:
        settings = {"max_seq_length": LENGTH, "doc_stride": 20, "max_query_length": 16}
        return export_question_answering(
            _randomised(BertQuestionAnswering(_config())),
            export(name),
            functools.partial(make_windows, tokenizer, **settings),
            n_best=5,
            max_answer_length=8,
            version_2=version_2,
            threshold=-1e6 if version_2 else 0.0,
            max_windows=64,
        )

    def tags() -> str:
        names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG", f"B-{HOSTILE_LABEL}"]
        texts, words = (
            functools.partial(made, tokenizer, max_seq_length=LENGTH)
            for made in (tag_inputs.tag_inputs_from_texts, tag_inputs.tag_inputs_from_words)
        )
        model = _randomised(BertTagger(_config(), len(names)))
        return export_tagger(model, export("tags"), texts, words, names)

    def pretrained(name: str, **changes) -> str:
        model = BertPretrainer(_config(**changes), next_sentence=not changes)
        arguments = export(name), rows(masking), masking, 5
        return export_pretrainer(_randomised(model), *arguments)

    def similar() -> str:
        pieces = functools.partial(vector_serving_inputs, tokenizer, LENGTH)
        model = _randomised(BertVectors(_config()))
        return export_embeddings(model, export("similar"), pieces, "mean")

    labels = ["negative", "neutral", HOSTILE_LABEL]
    return {
        "classes": lambda: sentences("classes", "classes", labels),
        "labels": lambda: sentences("labels", "multi_label", [*labels, "rude"]),
        "number": lambda: sentences("number", "regression", []),
        "pair": lambda: sentences("pair", "classes", ["entailed", "not entailed"], pairs=True),
        "choices": choices,
        "questions": lambda: questions("questions", False),
        "unanswered": lambda: questions("unanswered", True),
        "tags": tags,
        "masks": lambda: pretrained("masks"),
        "next": lambda: pretrained("next", attention_direction=LEFT_TO_RIGHT),
        "similar": similar,
    }
