"""Scores of exports in every number format, on the dev sets of real tasks.

    python -m tests.benchmarks.distillation --layers= --output_dir=/tmp/scores …   # fine-tunes
    python -m tests.benchmarks.served_scores --data=../shared/data --models_dir=/tmp/scores

A model is what the distillation benchmark has fine-tuned, in --models_dir/TASK/teacher. It is
exported by its script and asked as a client would ask it, from text. Whether whole numbers are
multiplied in int8 depends on the processor and on TF_ENABLE_ONEDNN_OPTS in the environment.
"""

from modeling import quiet  # noqa: F401  isort: skip

import itertools
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  operations of the exports
from absl import app, flags

from data.tasks.questions.metrics import evaluate_answers
from data.tasks.questions.squad import read_squad
from data.tasks.sentences import glue
from data.tasks.tagging.conll import TagFormat, read_conll_sentences
from data.tasks.tagging.metrics import evaluate_tags
from modeling.metrics import compute_metrics
from modeling.serving.flags import EXPORT_FORMATS
from tests.benchmarks.distillation import TASKS

FLAGS = flags.FLAGS
FOLDERS = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B"}

Ask = Callable[..., Mapping[str, np.ndarray]]
"""Inputs by name, lists of texts or of lists of texts → outputs by name."""


def asker(path: str, signature: str) -> Ask:
    """Asks a SavedModel in batches of texts of like length."""
    loaded = tf.saved_model.load(path)
    call = loaded.signatures[signature]

    def tensor(values: list) -> tf.Tensor:
        return tf.ragged.constant(values).to_tensor() if isinstance(values[0], list) else values

    def ask(_owner=loaded, **inputs: Sequence) -> Mapping[str, np.ndarray]:
        rows = list(zip(*inputs.values(), strict=True))
        order = sorted(range(len(rows)), key=lambda n: sum(map(len, rows[n])))
        found: dict[str, list] = {}
        for first in range(0, len(order), FLAGS.batch_size):
            some = order[first : first + FLAGS.batch_size]
            batch = {k: tensor([value[n] for n in some]) for k, value in inputs.items()}
            answers = call(**{k: tf.convert_to_tensor(v) for k, v in batch.items()})
            for name, value in answers.items():
                found.setdefault(name, []).extend(value.numpy())
        back = np.argsort(order)
        return {name: [values[n] for n in back] for name, values in found.items()}

    return ask


def sentence_score(task: str, ask: Ask) -> float:
    """Of the metric that a task of GLUE is judged by."""
    published = glue.get_task(FOLDERS[task])
    examples = list(published.read(os.path.join(FLAGS.data, "glue", FOLDERS[task]), "dev"))
    texts = {"text_a": [example.text_a for example in examples]}
    if published.pairs:
        texts["text_b"] = [example.text_b for example in examples]
    answers = ask(**texts)
    metric = TASKS[task].metric.removeprefix("eval_")
    if published.labels:
        labels = [published.labels.index(example.label) for example in examples]
        return compute_metrics([metric], np.array(answers["probabilities"]), labels)[metric]
    labels = [example.label for example in examples]
    return compute_metrics([metric], np.array(answers["score"]), labels)[metric]


def tag_score(ask: Ask) -> float:
    """F1 of CoNLL's entities."""
    path = os.path.join(FLAGS.data, "conll2003/eng.testa")
    sentences = read_conll_sentences(path, TagFormat(), labelled=True)
    tags = ask(words=[list(sentence.words) for sentence in sentences])["tags"]
    found = [
        [tag.decode() for tag in row[: len(sentence.words)]]
        for row, sentence in zip(tags, sentences, strict=True)
    ]
    return evaluate_tags([sentence.tags for sentence in sentences], found)["f1"]


def answer_score(ask: Ask) -> float:
    """F1 of SQuAD's answers."""
    path = os.path.join(FLAGS.data, "squad/dev-v1.1.json")
    questions = read_squad(path, training=False)
    texts = {"question": [q.question for q in questions], "context": [q.context for q in questions]}
    answers = ask(**texts)["answer"]
    predicted = {q.id: text.decode() for q, text in zip(questions, answers, strict=True)}
    return evaluate_answers(questions, predicted, version_2=False)["f1"] / 100


def write_export(task: str, dtype: str, target: str) -> str:
    """Exports a fine-tuned model as its script does; the version's folder."""
    benchmark, folder = TASKS[task], os.path.join(FLAGS.models_dir, task, "teacher")
    with open(os.path.join(folder, "command"), encoding="utf-8") as file:
        trained = shlex.split(file.read())
    command = [flag for flag in trained if flag not in ("--do_train", benchmark.judged)]
    command += ["--do_export", f"--export_dtype={dtype}", f"--export_dir={target}"]
    subprocess.run(command, check=True)
    return os.path.join(target, "1")


def score_of(task: str, dtype: str) -> float:
    """What an export answers right, by the task's metric."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_export(task, dtype, os.path.join(folder, dtype))
        ask = asker(path, "words" if task == "conll" else "serving_default")
    if task == "conll":
        return tag_score(ask)
    return answer_score(ask) if task == "squad" else sentence_score(task, ask)


def main(_) -> None:
    found = {}
    for task, dtype in itertools.product(FLAGS.tasks, FLAGS.dtypes):
        found[task, dtype] = score_of(task, dtype)
        print(f"{task} {dtype} {found[task, dtype]:.4f}", file=sys.stderr, flush=True)
    print(f"| task | metric | {' | '.join(FLAGS.dtypes)} |")
    print(f"|---|---|{'---:|' * len(FLAGS.dtypes)}")
    for task in FLAGS.tasks:
        values = [f"{100 * found[task, dtype]:.2f}" for dtype in FLAGS.dtypes]
        print(f"| {task} | {TASKS[task].metric.removeprefix('eval_')} | {' | '.join(values)} |")


if __name__ == "__main__":
    flags.DEFINE_string("data", "../shared/data", "Real data sets; see INDEX.md there.")
    flags.DEFINE_string("models_dir", None, "Where the fine-tuned models are.", required=True)
    flags.DEFINE_list("tasks", list(TASKS), "Which.")
    flags.DEFINE_list("dtypes", list(EXPORT_FORMATS["saved_model"]), "Number formats.")
    flags.DEFINE_integer("batch_size", 32, "Texts a request.")
    app.run(main)
