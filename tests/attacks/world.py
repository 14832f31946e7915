"""The folder that attacks start from: tiny models, files and what the commands make of them.

    world = build(folder, run)

Everything is made by the commands themselves, so that a case differs from a command that works in
nothing but its attack. `JOBS` are these commands; names of files are relative to the folder.
"""

import base64
import dataclasses
import json
import pathlib

from tests.fine_tuning import tiny_tasks

TEXTS = ("the film was good", "a very bad plot", "good and bad", "was the plot very good")


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that works.

    Attributes:
        command: As the table names it.
        arguments: Of Python.
        needs: What it reads: files and folders of the world, as NAME or as NAME:NAME HERE.
        traces: Patterns of the files that it may leave where it is refused: logs, caches.
        makes: What of it the world takes over for other jobs: NAME HERE:NAME.
    """

    command: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...]
    traces: tuple[str, ...] = ()
    makes: str = ""


_MODEL = ("--vocab_file=model/vocab.txt", "--bert_config_file=model/bert_config.json")
_WEIGHTS = (*_MODEL, "--init_checkpoint=model/bert_model.ckpt")
_SHORT = ("--max_seq_length=16", "--train_batch_size=4", "--num_train_steps=2")
_TUNING = (*_WEIGHTS, *_SHORT, "--warmup_proportion=0", "--output_dir=out")
_CLASSIFIER = ("run_classifier.py", "--task_name=delimited", *_TUNING, "--text_columns=text")
_CLASSIFIER += ("--label_column=verdict",)
_TRAINED = ("--do_train", "--train_file=train.tsv", "--do_eval", "--dev_file=dev.tsv")
_TAGGER = ("run_ner.py", "--data_dir=.", *_TUNING)
_ANSWERER = ("run_squad.py", *_TUNING, "--max_seq_length=32", "--doc_stride=8")
_ANSWERER += ("--max_query_length=8", "--train_file=train.json", "--predict_file=dev.json")
_PRETRAINING = ("run_pretraining.py", *_WEIGHTS, *_SHORT, "--num_warmup_steps=0")
_PRETRAINING += ("--max_predictions_per_seq=4", "--output_dir=out", "--do_train", "--do_eval")
_RECORDS = ("-m", "data.create_pretraining_data", "--input_file=corpus.txt", "--dupe_factor=2")
_RECORDS += ("--vocab_file=model/vocab.txt", "--max_seq_length=16", "--max_predictions_per_seq=4")
_EXTRACT = ("-m", "modeling.extract_features", *_WEIGHTS, "--max_seq_length=16", "--layers=-1")
_EXTRACT += ("--input_file=texts.txt",)
_PREDICT = ("-m", "modeling.predict", "--output_file=answers.jsonl")
# What a refused run may leave in its folder: that it was tried, and the lines that tell of it.
_TRACES = ("out/run_summary.json", "out/training.json", "out/metrics.jsonl", "out/events.*")
_TRACES += ("out/features/*", "out/labels.json")

JOBS = {
    "classifier": Job(
        "run_classifier",
        (*_CLASSIFIER, *_TRAINED),
        ("model", "train.tsv", "dev.tsv"),
        _TRACES,
        makes="out:classifier.out",
    ),
    "classifier of one file": Job(
        "run_classifier",
        (*_CLASSIFIER, *_TRAINED[:3], "--dev_fraction=0.2"),
        ("model", "train.tsv"),
        _TRACES,
    ),
    "classifier again": Job(
        "run_classifier",
        (*_CLASSIFIER, *_TRAINED, "--do_predict", "--test_file=test.tsv", "--num_train_steps=3"),
        ("model", "train.tsv", "dev.tsv", "test.tsv", "classifier.out:out"),
        _TRACES,
    ),
    "classifier searches": Job(
        "run_classifier",
        (*_CLASSIFIER, *_TRAINED, "--learning_rates=1e-3,1e-4"),
        ("model", "train.tsv", "dev.tsv"),
        _TRACES,
        makes="out:searches.out",
    ),
    "classifier searches again": Job(
        "run_classifier",
        (*_CLASSIFIER, *_TRAINED, "--learning_rates=1e-3,1e-4"),
        ("model", "train.tsv", "dev.tsv", "searches.out:out"),
        _TRACES,
    ),
    "classifier exports": Job(
        "run_classifier",
        (*_CLASSIFIER, "--do_export", "--export_dir=export"),
        ("model", "classifier.out:out"),
        _TRACES,
        makes="export:classifier.export",
    ),
    "classifier predicts": Job(
        "run_classifier",
        (*_CLASSIFIER, "--do_predict", "--test_file=test.tsv"),
        ("model", "test.tsv", "classifier.out:out"),
        _TRACES,
    ),
    "tagger": Job(
        "run_ner",
        (*_TAGGER, "--train_file=train.txt", "--dev_file=dev.txt", "--do_train", "--do_eval"),
        ("model", "train.txt", "dev.txt"),
        _TRACES,
        makes="out:tagger.out",
    ),
    "tagger exports": Job(
        "run_ner",
        (*_TAGGER, "--do_export", "--export_dir=export"),
        ("model", "tagger.out:out"),
        _TRACES,
        makes="export:tagger.export",
    ),
    "tagger predicts": Job(
        "run_ner",
        (*_TAGGER, "--test_file=dev.txt", "--do_predict"),
        ("model", "dev.txt", "tagger.out:out"),
        _TRACES,
    ),
    "answerer": Job(
        "run_squad",
        (*_ANSWERER, "--do_train", "--do_predict"),
        ("model", "train.json", "dev.json"),
        _TRACES,
        makes="out:answerer.out",
    ),
    "answerer exports": Job(
        "run_squad",
        (*_ANSWERER, "--do_export", "--export_dir=export"),
        ("model", "answerer.out:out"),
        _TRACES,
        makes="export:answerer.export",
    ),
    "answerer predicts": Job(
        "run_squad",
        (*_ANSWERER, "--do_predict"),
        ("model", "dev.json", "answerer.out:out"),
        _TRACES,
    ),
    "pretraining": Job(
        "run_pretraining",
        (*_PRETRAINING, "--input_file=records/*.tfrecord"),
        ("model", "records"),
        _TRACES,
        makes="out:pretraining.out",
    ),
    "pretraining from text": Job(
        "run_pretraining",
        (*_PRETRAINING, "--corpus_file=corpus.txt"),
        ("model", "corpus.txt"),
        _TRACES,
    ),
    "pretraining again": Job(
        "run_pretraining",
        (*_PRETRAINING, "--input_file=records/*.tfrecord", "--num_train_steps=3"),
        ("model", "records", "pretraining.out:out"),
        _TRACES,
    ),
    "records again": Job(
        "data.create_pretraining_data",
        (*_RECORDS, "--output_file=made/part.tfrecord", "--num_shards=3"),
        ("model", "corpus.txt", "records:made"),
    ),
    "records": Job(
        "data.create_pretraining_data",
        (*_RECORDS, "--output_file=made/part.tfrecord", "--num_shards=3"),
        ("model", "corpus.txt"),
        makes="made:records",
    ),
    "vocabulary": Job(
        "data.learn_vocabulary",
        (
            "-m",
            "data.learn_vocabulary",
            "--input_file=corpus.txt",
            "--output_file=learned.txt",
            "--vocab_size=60",
        ),
        ("corpus.txt",),
    ),
    "extended vocabulary": Job(
        "data.learn_vocabulary",
        (
            "-m",
            "data.learn_vocabulary",
            "--extend=unused.txt",
            "--output_file=learned.txt",
            "--input_file=corpus.txt",
        ),
        ("unused.txt", "corpus.txt"),
    ),
    "pruned model": Job(
        "data.learn_vocabulary",
        (
            "-m",
            "data.learn_vocabulary",
            "--prune=model",
            "--output_dir=pruned",
            "--input_file=corpus.txt",
        ),
        ("model", "corpus.txt"),
    ),
    "inspection": Job(
        "data.inspect_records",
        (
            "-m",
            "data.inspect_records",
            "records/*.tfrecord",
            "--vocab_file=model/vocab.txt",
            "--json=numbers.json",
        ),
        ("records", "model/vocab.txt"),
        # Its report of the damage.
        ("numbers.json",),
    ),
    "to huggingface": Job(
        "modeling.convert_checkpoint",
        (
            "-m",
            "modeling.convert_checkpoint",
            "--input=model",
            "--output=converted",
            "--format=huggingface",
        ),
        ("model",),
        makes="converted:hf",
    ),
    "to tf1": Job(
        "modeling.convert_checkpoint",
        ("-m", "modeling.convert_checkpoint", "--input=hf", "--output=converted", "--format=tf1"),
        ("hf",),
    ),
    "vectors": Job(
        "modeling.extract_features",
        (*_EXTRACT, "--output_file=vectors.jsonl"),
        ("model", "texts.txt"),
    ),
    "vectors of safetensors": Job(
        "modeling.extract_features",
        (
            *_EXTRACT,
            "--output_file=vectors.jsonl",
            "--init_checkpoint=hf",
            "--bert_config_file=hf/config.json",
            "--vocab_file=hf/vocab.txt",
        ),
        ("hf", "texts.txt"),
    ),
    "export of vectors": Job(
        "modeling.extract_features",
        (*_EXTRACT[:-1], "--export_dir=vectors"),
        ("model",),
    ),
    "prediction": Job(
        "modeling.predict",
        (*_PREDICT, "--saved_model=export", "--input_file=texts.txt"),
        ("classifier.export:export", "texts.txt"),
    ),
    "prediction of lines": Job(
        "modeling.predict",
        (*_PREDICT, "--saved_model=export", "--input_file=asked.jsonl"),
        ("classifier.export:export", "asked.jsonl"),
    ),
    "prediction of examples": Job(
        "modeling.predict",
        (*_PREDICT, "--saved_model=export", "--signature=examples", "--input_file=examples.jsonl"),
        ("classifier.export:export", "examples.jsonl"),
    ),
    "prediction of tags": Job(
        "modeling.predict",
        (*_PREDICT, "--saved_model=export", "--input_file=texts.txt"),
        ("tagger.export:export", "texts.txt"),
    ),
    "prediction of answers": Job(
        "modeling.predict",
        (*_PREDICT, "--saved_model=export", "--input_file=questions.jsonl"),
        ("answerer.export:export", "questions.jsonl"),
    ),
}


def write_files(folder: pathlib.Path) -> None:
    """Everything that no command makes."""
    tiny_tasks.write_model(folder)
    for name, count, seed in (("train", 24, 1), ("dev", 8, 2), ("test", 4, 3)):
        rows = tiny_tasks.sentences(count, seed)
        if name == "test":
            rows = [{"text": row["text"]} for row in rows]
        tiny_tasks.write_rows(folder / f"{name}.tsv", rows)
        tiny_tasks.write_tags(folder / f"{name}.txt", count, seed)
        tiny_tasks.write_questions(folder / f"{name}.json", count, seed)
    documents = ("\n".join(f"{text} {word}" for text in TEXTS) for word in tiny_tasks.NAMES * 4)
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    unused = [*special, *(f"[unused{number}]" for number in range(9)), *tiny_tasks.WORDS]
    (folder / "unused.txt").write_text("\n".join(unused) + "\n")
    write_lines(folder / "asked.jsonl", [{"id": n, "text_a": t} for n, t in enumerate(TEXTS)])
    examples = [{"examples": serialized_example("text_a", text)} for text in TEXTS]
    write_lines(folder / "examples.jsonl", examples)
    asked = [{"question": "who is it", "context": f"it is {name}"} for name in tiny_tasks.NAMES]
    write_lines(folder / "questions.jsonl", asked)


def serialized_example(feature: str, text: str) -> dict[str, str]:
    """A tf.Example with one feature, as JSON holds bytes."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    # Example.features.feature[name] = Feature.bytes_list.value
    value = field(1, field(1, text.encode()))
    content = field(1, field(1, field(1, feature.encode()) + field(2, value)))
    return {"b64": base64.b64encode(content).decode()}


def write_lines(path: pathlib.Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


MAKE_MODEL = """
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertPretrainer
model = BertPretrainer(BertConfig.from_json_file("config.json"))
model.build()
checkpoints.save(model, "model", "vocab.txt")
"""
"""Of the released kind: bert_model.ckpt, bert_config.json and vocab.txt in a folder."""
