"""What a request costs: memory and time of every export against a text's length, 1 kB to 20 MB.

    python -m tests.benchmarks.request_bounds --output_dir=/tmp/bounds
    python -m tests.benchmarks.request_bounds --output_dir=/tmp/bounds --hostile=100000

Every family is exported with a tiny random model, so that what is seen is the text side and the
answers, which is where a text's length counts; then each signature that takes text is asked, in a
process of its own that may not have more than --most_gigabytes. Texts are of words, of one word
without a space, and of what is hardest for the tokenizer (words of just too many letters, accents
that are stripped, punctuation). Writes rows.json, table.md and plot.png, which needs matplotlib.

--hostile asks each family about so many strings of control characters, broken UTF-8, marks, special
tokens and the like, then all together a fifth as many requests of one text each: nothing may fail,
and memory may not grow. Exits with an error if something isn't so.
"""

from modeling import quiet  # noqa: F401  isort: skip

import functools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
from absl import app, flags

from data.tasks.questions import windows as question_windows
from data.tasks.tagging import inputs as tagging_inputs
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from data.vectors.serving_inputs import vector_serving_inputs
from modeling import models
from modeling.config import BertConfig
from modeling.serving.export import Export
from modeling.serving.pretraining import export_pretrainer
from modeling.serving.question_answering import export_question_answering
from modeling.serving.sentences import export_sentence_model
from modeling.serving.tagging import export_tagger
from modeling.serving.vectors import export_embeddings
from modeling.vectors.vector_models import BertVectors

FLAGS = flags.FLAGS
LENGTH = 64
SIZES = tuple(int(kilobytes * 1000) for kilobytes in (1, 10, 100, 300, 1000, 5000, 20000))
WORDS = ["the", "of", "plot", "film", "was", "good", "bad", "and", "##ly"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz.,'"]
VOCAB += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


class Request(NamedTuple):
    """A family's signature, and what is asked about a text, for which {} stands."""

    family: str
    signature: str
    inputs: Mapping[str, str | list[str]]


REQUESTS = (
    Request("classes", "serving_default", {"text_a": "{}"}),
    Request("classes", "examples", {"text_a": "{}"}),
    Request("pairs", "serving_default", {"text_a": "good film", "text_b": "{}"}),
    Request("windows", "serving_default", {"text_a": "{}"}),
    Request("choices", "serving_default", {"context": "{}", "choices": ["good"] * 20}),
    Request("questions", "serving_default", {"question": "was it good", "context": "{}"}),
    Request("questions", "n_best", {"question": "{}", "context": "it was good"}),
    Request("tags", "serving_default", {"text": "{}"}),
    Request("tags", "words", {"words": ["{}", "was", "good"]}),
    Request("vectors", "serving_default", {"text": "{}"}),
    Request("vectors", "pieces", {"text": "{}"}),
    Request("vectors", "words", {"text": "{}"}),
    Request("fill-mask", "serving_default", {"text": "[MASK] {}"}),
    Request("fill-mask", "log_likelihood", {"text": "{}"}),
    Request("fill-mask", "next_sentence", {"text_a": "{}", "text_b": "{}"}),
)
KINDS = {
    "words": "the plot of the film was good, and badly ",
    "one word": "x",
    "words of 201 letters": "x" * 201 + " ",
    "accents": "e\u0301",
    "sigmas": "a\u03a3 ",
    "dots": ".",
}
HOSTILE = [
    *(bytes([byte]) for byte in range(32)),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"[MASK]", b"[SEP]", b"[PAD]"),
    *(text.encode() for text in ("\u0301", "\u200b", "\ufeff", "\u202e", "\ud55c", "\u6f22")),
    *(text.encode() for text in ("\U0001f600", "\u03a3", "a\u03a3", "\u0130", "\u00a0", "'s")),
    *(b"good", b"film", b" ", b" ", b"x" * 201, b"x" * 5000, b"##s", b"{}", b"%s", b"\x7f" * 99),
]

# Asks signatures; needs TensorFlow and TF Text only. Reads requests from standard input, a line of
# JSON each, and answers each with one.
_CHILD = """
import ctypes, functools, json, resource, sys, time
import tensorflow as tf, tensorflow_text
# Of address space, of which TensorFlow takes some gigabytes without using them.
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
load = functools.cache(tf.saved_model.load)

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

def settled():
    # What is free goes back, so that it doesn't hide what the next request takes.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return memory("VmRSS")

def filled(value, text):
    if isinstance(value, list):
        return [filled(one, text) for one in value]
    return value.encode().replace(b"{}", text)

def tensors(inputs, texts, signature):
    rows = {name: [filled(value, text) for text in texts] for name, value in inputs.items()}
    if signature != "examples":
        return {name: tf.constant(value) for name, value in rows.items()}
    examples = []
    for number in range(len(texts)):
        example = tf.train.Example()
        for name, value in rows.items():
            strings = value[number] if isinstance(value[number], list) else [value[number]]
            example.features.feature[name].bytes_list.value.extend(strings)
        examples.append(example.SerializeToString())
    return {"examples": tf.constant(examples)}

for line in sys.stdin:
    request = json.loads(line)
    signature = request["signature"]
    call = load(request["path"]).signatures[signature]
    unit = bytes.fromhex(request["unit"])
    if "size" in request:
        unit = (unit * (request["size"] // len(unit) + 1))[: request["size"]]
    texts = [unit] if "size" in request else unit.split(b"\\0\\n\\0")
    asked = tensors(request["inputs"], texts, signature)
    settled()
    begin, said = time.perf_counter(), ""
    try:
        call(**asked)
    except tf.errors.OpError as error:
        said = " ".join(str(error.message).split("<stack traces unavailable>")[-1].split())
    seconds, peak = time.perf_counter() - begin, memory("VmHWM")
    asked = None
    print(json.dumps({"seconds": seconds, "peak": peak, "said": said, "resident": settled()}),
          flush=True)
"""
_BETWEEN = b"\0\n\0"


class Asked:
    """A process that loads exports and is asked; begun anew when it dies, ended on leaving.

    Args:
        most_gigabytes: Of address space.
    """

    def __init__(self, most_gigabytes: float):
        self._most = str(int(most_gigabytes * 2**30))

    def __enter__(self) -> "Asked":
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, self._most],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Large tensors are given back when they are free.
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "MALLOC_MMAP_THRESHOLD_": "100000"},
            text=True,
        )
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.communicate()

    def size(self, request: Request, path: str, unit: str, size: int) -> dict:
        """What so many bytes of a text cost; `died` if the process did."""
        return self._ask(request, path, unit.encode(), size=size)

    def texts(self, request: Request, path: str, texts: Sequence[bytes]) -> dict:
        """The same of several texts, none of which holds `_BETWEEN`, at once."""
        return self._ask(request, path, _BETWEEN.join(texts))

    def _ask(self, request: Request, path: str, unit: bytes, **further) -> dict:
        asked = further | {"path": path, "unit": unit.hex()}
        asked |= {"signature": request.signature, "inputs": request.inputs}
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            code = self._process.wait()
            self.__enter__()
            return {"died": code}


def make_exports(folder: pathlib.Path) -> dict[str, str]:
    """All families, tiny; by name the folder of each."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    tokenizer = Tokenizer(str(vocab))
    masking = Tokenizer(str(vocab), never_split=["[MASK]"])
    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=LENGTH,
    )
    keras.utils.set_random_seed(1)

    def built(model):
        model.build()
        return model

    def export(name: str) -> Export:
        return Export(str(folder / name), {}, None, LENGTH)

    def inputs(tokenizer, **options):
        return functools.partial(
            build_inputs, tokenizer, max_seq_length=LENGTH, pad_to="longest", **options
        )

    def sentences(name, kind, pairs=False, **options):
        model = built(models.BertClassifier(config, num_labels=2))
        preprocess = inputs(tokenizer, **options)
        return export_sentence_model(model, export(name), kind, preprocess, ["-", "+"], pairs)

    def choices(*texts):
        return build_choice_inputs(tokenizer, *texts, LENGTH, "longest")

    lengths = {"max_seq_length": LENGTH}
    return {
        "classes": sentences("classes", "classes"),
        "pairs": sentences("pairs", "classes", True),
        "windows": sentences("windows", "classes", long_text="windows"),
        "choices": export_sentence_model(
            built(models.BertMultipleChoice(config)),
            *(export("choices"), "choices", choices, [], False),
        ),
        "questions": export_question_answering(
            built(models.BertQuestionAnswering(config)),
            export("questions"),
            functools.partial(
                question_windows.make_windows,
                tokenizer,
                doc_stride=32,
                max_query_length=16,
                **lengths,
            ),
            n_best=20,
            max_answer_length=10,
            version_2=False,
            threshold=0.0,
            max_windows=512,
        ),
        "tags": export_tagger(
            built(models.BertTagger(config, 3)),
            export("tags"),
            functools.partial(
                tagging_inputs.tag_inputs_from_texts, tokenizer, max_windows=1024, **lengths
            ),
            functools.partial(
                tagging_inputs.tag_inputs_from_words, tokenizer, max_windows=1024, **lengths
            ),
            ["O", "B-X", "I-X"],
        ),
        "vectors": export_embeddings(
            built(BertVectors(config)),
            export("vectors"),
            functools.partial(vector_serving_inputs, tokenizer, LENGTH),
            "mean",
        ),
        "fill-mask": export_pretrainer(
            built(models.BertPretrainer(config)), export("fill-mask"), inputs(masking), masking, 3
        ),
    }


def measure(exports: Mapping[str, str], requests, kinds, sizes, most_gigabytes: float) -> list:
    """Dicts: family, signature, kind, size, seconds, memory (MB above idle), said; or died."""
    rows = []
    with Asked(most_gigabytes) as asked:
        for request in requests:
            path = exports[request.family]
            for kind in kinds:
                loaded = asked.size(request, path, KINDS[kind], 100)["resident"]
                for size in sizes:
                    row = {"family": request.family, "signature": request.signature, "kind": kind}
                    row |= {"size": size} | asked.size(request, path, KINDS[kind], size)
                    rows.append(row)
                    if "died" in row:
                        break
                    row["memory"] = row["peak"] - loaded
                    print(row, flush=True)
    return rows


def measure_hostile(exports, requests, strings: int, single: int, seed: int) -> list[str]:
    """Asks each of the requests' families about hostile strings; what went wrong."""
    draw, faults = random.Random(seed), []
    with Asked(FLAGS.most_gigabytes) as asked:
        for request in requests:
            path, resident = exports[request.family], []
            for batch, number in ((500, strings), (1, single)):
                for _ in range(0, number, batch):
                    got = asked.texts(request, path, [hostile(draw) for _ in range(batch)])
                    if got.get("said", "died"):
                        faults.append(f"{request.family} {request.signature}: {got}")
                    resident.append(got.get("resident", 0))
            quarter = len(resident) // 4
            first = statistics.median(resident[quarter : 2 * quarter])
            last = statistics.median(resident[-quarter:])
            print(
                f"{request.family}: {strings:,} strings, {single:,} requests, {first:.0f} MB then "
                f"{last:.0f} MB",
                flush=True,
            )
            if last > 1.1 * first:
                faults.append(f"{request.family}: memory grew from {first:.0f} to {last:.0f} MB")
    return faults


def hostile(draw: random.Random) -> bytes:
    """A short string of what tokenizers and parsers stumble over."""
    parts = draw.choices(HOSTILE, k=draw.randrange(12))
    if draw.random() < 0.3:
        parts.append(draw.randbytes(draw.randrange(20)))
    return b"".join(parts).replace(_BETWEEN, b"")


def table(rows: Sequence[Mapping]) -> str:
    """Megabytes above the idle process and seconds by size; in brackets what was refused."""
    sizes = sorted({row["size"] for row in rows})
    lines = ["| | " + " | ".join(f"{size / 1000:,.0f} kB" for size in sizes) + " |"]
    lines.append("|---|" + "---:|" * len(sizes))
    parts = {}
    for row in rows:
        parts.setdefault((row["family"], row["signature"], row["kind"]), {})[row["size"]] = row
    for (family, signature, kind), by_size in parts.items():
        cells = []
        for size in sizes:
            row = by_size.get(size, {"died": 0})
            cell = "died" if "died" in row else f"{row['memory']:.0f} MB, {row['seconds']:.2f} s"
            cells.append(f"({cell})" if row.get("said") else cell)
        lines.append(f"| {family}, `{signature}`, {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(rows: Sequence[Mapping], path: pathlib.Path) -> None:
    """Memory and time against size, the most of each family."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    titles = {"memory": "memory above the idle process, MB", "seconds": "seconds"}
    for axis, (name, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for family in sorted({row["family"] for row in rows}):
            most = {}
            for row in (row for row in rows if row["family"] == family and "died" not in row):
                most[row["size"]] = max(most.get(row["size"], 1e-3), row[name])
            axis.plot(*zip(*sorted(most.items()), strict=True), lw=1, label=family)
        axis.set(xscale="log", yscale="log", xlabel="bytes of the text", title=title)
        axis.grid(alpha=0.25)
    axis.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=75, metadata={"Software": None})


def main(_) -> None:
    folder = pathlib.Path(FLAGS.output_dir)
    exports = make_exports(folder / "exports")
    requests = [r for r in REQUESTS if not FLAGS.families or r.family in FLAGS.families]
    if FLAGS.hostile:
        first = {request.family: request for request in reversed(requests)}.values()
        single = FLAGS.hostile // 5 // len(first)
        faults = measure_hostile(exports, first, FLAGS.hostile, single, 0)
        if faults:
            raise SystemExit("\n".join(faults[:20]))
        return
    rows = measure(exports, requests, FLAGS.kinds or KINDS, SIZES, FLAGS.most_gigabytes)
    (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "table.md").write_text(table(rows) + "\n", encoding="utf-8")
    plot(rows, folder / "plot.png")


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", None, "Of exports, table and plot.", required=True)
    flags.DEFINE_float("most_gigabytes", 14, "Address space of the process that is asked.")
    flags.DEFINE_list("families", [], "Only these.")
    flags.DEFINE_list("kinds", [], "Only these kinds of text.")
    flags.DEFINE_integer("hostile", 0, "So many hostile strings a family, not long texts.")
    app.run(main)
