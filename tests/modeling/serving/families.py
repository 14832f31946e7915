"""One export for each family of tasks, on real texts, with the answers of the training code.

The encoder is a pre-trained one, the heads are random: what is compared is whether all clients
give the model's answers, not how good these are.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from data import batching
from data.tasks.questions import windows as squad_windows
from data.tasks.questions.answers import read_answers
from data.tasks.questions.rows import QuestionSettings
from data.tasks.questions.rows import make_question_rows as make_span_rows
from data.tasks.questions.squad import read_squad
from data.tasks.tagging import conll as ner
from data.tasks.tagging import inputs as ner_inputs
from data.tasks.tagging import tags as ner_tags
from data.tasks.tagging.rows import TaggingSettings
from data.tasks.tagging.rows import make_tagging_rows as make_tag_rows
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from data.vectors.serving_inputs import vector_serving_inputs
from modeling import checkpoints
from modeling.answers.fill_mask import fill_masks
from modeling.answers.spans import SpanSearch, merge_span_arrays
from modeling.answers.tags import TagsFromLogits
from modeling.config import BertConfig
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
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.vectors.vector_models import BertVectors

LENGTH = 128
AT_ONCE = 50


@dataclasses.dataclass(frozen=True)
class Family:
    """An export with questions and answers.

    Attributes:
        name: Of the family.
        path: The SavedModel.
        signature: The one that is asked.
        inputs: By name, [N, ...].
        wanted: Outputs by name, [N, ...], of the training code.
    """

    name: str
    path: str
    signature: str
    inputs: Mapping[str, np.ndarray]
    wanted: Mapping[str, np.ndarray]

    def requests(self) -> Iterator[dict[str, np.ndarray]]:
        for first in range(0, self.size, AT_ONCE):
            yield {k: v[first : first + AT_ONCE] for k, v in self.inputs.items()}

    def first(self, count: int) -> "Family":
        """With so many inputs."""
        parts = ({k: v[:count] for k, v in of.items()} for of in (self.inputs, self.wanted))
        return Family(self.name, self.path, self.signature, *parts)

    @property
    def size(self) -> int:
        return len(next(iter(self.inputs.values())))

    def check(self, answers: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Compares the answers to all requests."""
        for name, wanted in self.wanted.items():
            got = np.concatenate([_wide(np.asarray(a[name]), wanted) for a in answers])
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(got, wanted, atol=1e-5, err_msg=f"{self.name} {name}")
            else:
                assert got.tolist() == wanted.tolist(), (self.name, name)


def _wide(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Filled up behind to the width of the widest request's rows."""
    if array.ndim < 2:
        return array
    fill = b"" if array.dtype.kind == "O" else 0
    pad = [(0, 0), (0, like.shape[1] - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
    return np.pad(array, pad, constant_values=fill)


def strings(values) -> np.ndarray:
    """str → bytes."""
    return np.vectorize(lambda text: text.encode(), otypes=[object])(np.array(values, object))


def make_families(
    minilm: pathlib.Path, data: pathlib.Path, folder: pathlib.Path, count: int
) -> Iterator[Family]:
    """All families, with `count` real inputs each."""
    config = BertConfig.from_json_file(str(minilm / "config.json"))
    vocab = str(minilm / "vocab.txt")
    tokenizer = Tokenizer(vocab)

    def loaded(model):
        # Of one seed, so that a failure can be seen again.
        keras.utils.set_random_seed(1)
        model.build()
        checkpoints.load(model, str(minilm / "model.safetensors"), required=checkpoints.ENCODER)
        return model

    def export(name: str) -> Export:
        assets = {"vocab.txt": vocab, "bert_config.json": str(minilm / "config.json")}
        return Export(str(folder / name), assets, None, LENGTH)

    def single(*texts):
        return build_inputs(tokenizer, *texts, max_seq_length=LENGTH, pad_to="longest")

    def outputs(model, inputs, name="logits") -> np.ndarray:
        parts = []
        for first in range(0, count, AT_ONCE):
            part = {k: v[first : first + AT_ONCE] for k, v in inputs.items()}
            parts.append(model(part)[name].numpy())
        return np.concatenate(parts)

    # ---- Sentences ----
    texts = _column(data / "glue/SST-2/dev.tsv", 0, count)
    model = loaded(BertClassifier(config, num_labels=2))
    path = export_sentence_model(model, export("classes"), "classes", single, ["-", "+"], False)
    wanted = tf.nn.softmax(outputs(model, single(texts))).numpy()
    labels = np.array([b"-", b"+"], object)[wanted.argmax(1)]
    yield Family(
        *("classes", path, "serving_default", {"text_a": strings(texts)}),
        {"probabilities": wanted, "label": labels},
    )

    model = loaded(BertClassifier(config, num_labels=3))
    names = ["a", "b", "c"]
    path = export_sentence_model(model, export("labels"), "multi_label", single, names, False)
    wanted = tf.sigmoid(outputs(model, single(texts))).numpy()
    yield Family(
        *("labels", path, "serving_default", {"text_a": strings(texts)}),
        {
            "probabilities": wanted,
            "predicted": np.where(wanted >= 0.5, strings(names), b"").astype(object),
        },
    )

    pairs = [_column(data / "glue/STS-B/dev.tsv", column, count) for column in (7, 8)]
    model = loaded(BertClassifier(config, num_labels=1))
    path = export_sentence_model(model, export("numbers"), "regression", single, [], True)
    yield Family(
        *("numbers", path, "serving_default"),
        dict(zip(("text_a", "text_b"), map(strings, pairs), strict=True)),
        {"score": outputs(model, single(*pairs))[:, 0]},
    )

    with open(data / "swag/swag-500.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(count), strict=False)]
    contexts = [row["startphrase"] for row in rows]
    endings = [row["choices"] for row in rows]

    def choices(*given):
        return build_choice_inputs(tokenizer, *given, LENGTH, "longest")

    model = loaded(BertMultipleChoice(config))
    path = export_sentence_model(model, export("choices"), "choices", choices, [], False)
    wanted = tf.nn.softmax(outputs(model, choices(contexts, endings))).numpy()
    best = wanted.argmax(1)
    yield Family(
        *("choices", path, "serving_default"),
        {"context": strings(contexts), "choices": strings(endings)},
        {
            "probabilities": wanted,
            "choice_text": strings([row[b] for row, b in zip(endings, best, strict=True)]),
        },
    )

    # ---- Questions ----
    questions = read_squad(str(data / "squad/dev-v1.1.json"), version_2=False, training=False)
    questions = questions[:: len(questions) // count][:count]
    model = loaded(BertQuestionAnswering(config))
    settings = QuestionSettings(max_seq_length=LENGTH, doc_stride=64, max_query_length=32)
    path = export_question_answering(
        model,
        export("questions"),
        functools.partial(squad_windows.make_windows, tokenizer, **dataclasses.asdict(settings)),
        n_best=5,
        max_answer_length=20,
        version_2=False,
        threshold=0.0,
    )
    rows = make_span_rows(tokenizer, questions, settings, training=False)
    shape = batching.Batching(16, batching.batching_length_buckets(LENGTH))
    spans = ReplicaPredictor(SpanSearch([model], 5, 20), "spans")(
        batching.batches(rows.features, shape, False)
    )
    merged = merge_span_arrays(spans, rows.counts)
    answers = list(read_answers(questions, rows, merged, False))
    yield Family(
        *("questions", path, "serving_default"),
        {
            "question": strings([q.question for q in questions]),
            "context": strings([q.context for q in questions]),
        },
        {
            "answer": strings([answer.text() for answer in answers]),
            "score": (merged.start_logits + merged.end_logits)[:, 0],
        },
    )

    # ---- Tags ----
    sentences = ner.read_conll_sentences(
        str(data / "conll2003/eng.testb"), ner.TagFormat(), labelled=True
    )[:count]
    tags = ner_tags.make_tag_set(sentences, "iob2")
    model = loaded(BertTagger(config, len(tags)))
    lengths = {"max_seq_length": LENGTH}
    path = export_tagger(
        model,
        export("tags"),
        functools.partial(ner_inputs.tag_inputs_from_texts, tokenizer, **lengths),
        functools.partial(ner_inputs.tag_inputs_from_words, tokenizer, **lengths),
        tags.names,
    )
    rows = make_tag_rows(tokenizer, sentences, tags, TaggingSettings(LENGTH))
    tagged = ReplicaPredictor(TagsFromLogits(model), "tagged")(
        batching.batches(rows.features, shape, False)
    )
    found = rows.tags_of_words(tagged[..., 0].astype(int), tags)
    width = max(len(sentence.words) for sentence in sentences)
    yield Family(
        *("tags", path, "words"),
        {"words": strings([[*s.words, *[""] * (width - len(s.words))] for s in sentences])},
        {"tags": strings([[*row, *["O"] * (width - len(row))] for row in found])},
    )

    # ---- Vectors ----
    model = loaded(BertVectors(config))
    path = export_embeddings(
        model,
        export("vectors"),
        functools.partial(vector_serving_inputs, tokenizer, LENGTH),
        "mean",
    )
    pooled = BertVectors(config, pooling="mean", normalize=True)
    vectors = outputs(loaded(pooled), single(texts), "vectors")
    yield Family(
        *("vectors", path, "serving_default", {"text": strings(texts)}),
        {"embedding": vectors.reshape(count, -1)},
    )

    # ---- Pre-training ----
    masking = Tokenizer(vocab, never_split=["[MASK]"])
    holes = [_with_hole(text, number) for number, text in enumerate(texts)]
    model = loaded(BertPretrainer(config))
    path = export_pretrainer(
        model,
        export("words"),
        functools.partial(build_inputs, masking, max_seq_length=LENGTH, pad_to="longest"),
        masking,
        3,
    )
    inputs = build_inputs(masking, holes, max_seq_length=LENGTH)
    positions = np.argmax(inputs["input_ids"].numpy() == masking.mask_id, 1)[:, None]
    found = [
        fill_masks(
            model,
            {k: v[first : first + AT_ONCE] for k, v in inputs.items()}
            | {"masked_lm_positions": positions[first : first + AT_ONCE].astype(np.int32)},
        )
        for first in range(0, count, AT_ONCE)
    ]
    ids, scores = (np.concatenate(part) for part in zip(*found, strict=True))
    words = strings(masking.vocab)[ids]
    yield Family(
        *("words", path, "serving_default", {"text": strings(holes)}),
        {"words": words, "scores": scores},
    )


def _column(path: pathlib.Path, column: int, count: int) -> list[str]:
    lines = path.read_text("utf-8").split("\n")[1 : count + 1]
    return [line.split("\t")[column] for line in lines]


def _with_hole(text: str, number: int) -> str:
    words = text.split()
    words[number % len(words)] = "[MASK]"
    return " ".join(words)
