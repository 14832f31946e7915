"""What a request costs: memory and time of every export against a text's length, 1 kB to 20 MB.

    python -m tests.benchmarks.request_bounds --output_dir=/tmp/bounds
    python -m tests.benchmarks.request_bounds --output_dir=/tmp/bounds --hostile

Every family is exported with a tiny random model, so that what is seen is the text side and the
answers, which is where a text's length counts; then each signature that takes text is asked, in a
process of its own that may not have more than --most_gigabytes. Texts are of words, of one word
without a space, and of what is hardest for the tokenizer (words of just too many letters, accents
that are stripped, punctuation). Writes a table, a TSV and a plot.

--hostile asks each family about 100,000 strings of control characters, broken UTF-8, marks, special
tokens and the like, then 20,000 requests of one text each: nothing may fail, and memory may not
grow. Exits with an error if something isn't so.
"""

from modeling import quiet  # noqa: F401  isort: skip

import functools
import json
import os
import pathlib
import subprocess
import sys

import keras
from absl import app, flags

from data.tasks.questions import windows as question_windows
from data.tasks.tagging import inputs as tagging_inputs
from data.tokenization import Tokenizer, build_choices, build_inputs
from data.vectors.serving_inputs import text_pieces
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
WORDS = ["the", "of", "plot", "film", "was", "good", "bad", "and", "##s", "##ly"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz.,'"]
VOCAB += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]

# Family, signature, inputs of a request about a text: {} stands for it.
REQUESTS = [
    ("classes", "serving_default", {"text_a": ["{}"]}),
    ("classes", "examples", None),
    ("pairs", "serving_default", {"text_a": ["good film"], "text_b": ["{}"]}),
    ("windows", "serving_default", {"text_a": ["{}"]}),
    ("choices", "serving_default", {"context": ["{}"], "choices": [["good"] * 20]}),
    ("questions", "serving_default", {"question": ["was it good"], "context": ["{}"]}),
    ("questions", "n_best", {"question": ["{}"], "context": ["it was good"]}),
    ("tags", "serving_default", {"text": ["{}"]}),
    ("tags", "words", {"words": [["{}", "was", "good"]]}),
    ("vectors", "serving_default", {"text": ["{}"]}),
    ("vectors", "pieces", {"text": ["{}"]}),
    ("vectors", "words", {"text": ["{}"]}),
    ("fill-mask", "serving_default", {"text": ["[MASK] {}"]}),
    ("fill-mask", "log_likelihood", {"text": ["{}"]}),
    ("fill-mask", "next_sentence", {"text_a": ["{}"], "text_b": ["{}"]}),
]
KINDS = {
    "words": "the plot of the film was good, and badly ",
    "one word": "x",
    "words of 201 letters": "x" * 201 + " ",
    "accents": "e\u0301",
    "sigmas": "a\u03a3 ",
    "dots": ".",
}

# Asks one signature; needs TensorFlow and TF Text only. Reads requests from standard input as JSON,
# one a line, answers with a line each.
_CHILD = """
import json, resource, sys, time
path, signature, most = sys.argv[1:]
import tensorflow as tf, tensorflow_text
# Address space, of which TensorFlow takes some gigabytes without using them.
resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
call = tf.saved_model.load(path).signatures[signature]

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

def asked(inputs, size, text):
    if inputs is None:
        inputs = {"examples": [None]}
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
        example = tf.train.Example(features=tf.train.Features(feature={"text_a": feature}))
        return {"examples": tf.constant([example.SerializeToString()])}
    def filled(value):
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.encode().replace(b"{}", text)
    return {name: tf.constant(filled(value)) for name, value in inputs.items()}

for line in sys.stdin:
    request = json.loads(line)
    if "strings" in request:
        texts = [bytes.fromhex(one) for one in request["strings"]]
        for first in range(0, len(texts), request["batch"]):
            some = texts[first : first + request["batch"]]
            inputs = {}
            for name, value in request["inputs"].items():
                inputs[name] = tf.constant([
                    [one.encode().replace(b"{}", text) for one in value[0]]
                    if isinstance(value[0], list) else value[0].encode().replace(b"{}", text)
                    for text in some])
            call(**inputs)
        print(json.dumps({"memory": memory("VmRSS")}), flush=True)
        continue
    unit = request["unit"].encode()
    text = (unit * (request["size"] // len(unit) + 1))[: request["size"]]
    tensors = asked(request["inputs"], request["size"], text)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, begin = memory("VmRSS"), time.perf_counter()
    try:
        call(**tensors)
        said = ""
    except tf.errors.OpError as error:
        said = " ".join(str(error.message).split("<stack traces unavailable>")[-1].split())
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "memory": memory("VmHWM") - before,
                      "said": said}), flush=True)
"""


class Asked:
    """A process that has one signature loaded and is asked; `close` ends it.

    Args:
        path: The SavedModel.
        signature: Of it.
        most_gigabytes: Of address space.
    """

    def __init__(self, path: str, signature: str, most_gigabytes: float):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, path, signature, str(int(most_gigabytes * 2**30))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            text=True,
        )

    def ask(self, **request) -> dict:
        """What came; {"died": code} if the process did."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            return {"died": self._process.wait()}

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


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
        return build_choices(tokenizer, *texts, LENGTH, "longest")

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
            max_windows=FLAGS.max_windows if FLAGS.is_parsed() else 512,
        ),
        "tags": export_tagger(
            built(models.BertTagger(config, 3)),
            export("tags"),
            functools.partial(tagging_inputs.from_texts, tokenizer, **lengths),
            functools.partial(tagging_inputs.from_words, tokenizer, **lengths),
            ["O", "B-X", "I-X"],
        ),
        "vectors": export_embeddings(
            built(BertVectors(config)),
            export("vectors"),
            functools.partial(text_pieces, tokenizer, LENGTH),
            "mean",
        ),
        "fill-mask": export_pretrainer(
            built(models.BertPretrainer(config)), export("fill-mask"), inputs(masking), masking, 3
        ),
    }


def main(_) -> None:
    folder = pathlib.Path(FLAGS.output_dir)
    exports = make_exports(folder / "exports")
    for family, signature, inputs in REQUESTS:
        if FLAGS.families and family not in FLAGS.families:
            continue
        for kind in FLAGS.kinds or KINDS:
            asked = Asked(exports[family], signature, FLAGS.most_gigabytes)
            asked.ask(inputs=inputs, unit=KINDS[kind], size=100)
            for size in SIZES:
                got = asked.ask(inputs=inputs, unit=KINDS[kind], size=size)
                if "died" in got:
                    print(family, signature, kind, size, got, flush=True)
                    break
                print(
                    family,
                    signature,
                    kind,
                    size,
                    f"{got['memory']:.0f} MB",
                    f"{got['seconds']:.3f} s",
                    got["said"][:150],
                    flush=True,
                )
            else:
                asked.close()


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", None, "Of exports, table and plot.", required=True)
    flags.DEFINE_float("most_gigabytes", 14, "Address space of a process that is asked.")
    flags.DEFINE_integer("max_windows", 512, "See --export_max_windows.")
    flags.DEFINE_list("families", [], "Only these.")
    flags.DEFINE_list("kinds", [], "Only these kinds of text.")
    flags.DEFINE_bool("hostile", False, "Hostile strings instead of long texts.")
    app.run(main)
