"""How much of its teacher a student keeps before any training: similarities between sentences.

    python -m tests.benchmarks.student_starts --data_dir=$GLUE_DIR --minilm=$MINILM_DIR

Students of different layers and widths are cut out of MiniLM. For the first sentences of SST-2's
dev set, the cosines between all pairs of their vectors (means over the pieces of the last layer)
are compared with the teacher's, by Pearson's and Spearman's correlation.
"""

import os
import tempfile

import numpy as np
from absl import app, flags

import modeling
from data.tokenization import build_inputs
from modeling.checkpoints.students.depth import evenly_spaced_layers
from modeling.checkpoints.students.making import make_student

FLAGS = flags.FLAGS


def cosines(folder, glue, sentences: int) -> np.ndarray:
    """Of all pairs of a model's vectors for the first sentences of SST-2's dev set."""
    with open(os.path.join(glue, "SST-2", "dev.tsv"), encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in file.read().splitlines()[1 : sentences + 1]]
    model, tokenizer, _ = modeling.from_pretrained(folder)
    inputs = build_inputs(tokenizer, texts, max_seq_length=64)
    hidden = np.asarray(model(inputs)["sequence_output"])
    real = np.asarray(inputs["input_mask"])[..., np.newaxis]
    vectors = (hidden * real).sum(1) / real.sum(1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]


def correlations(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Pearson's and Spearman's; no two cosines are equal."""
    ranks = (np.argsort(np.argsort(x)) for x in (ours, theirs))
    return float(np.corrcoef(ours, theirs)[0, 1]), float(np.corrcoef(*ranks)[0, 1])


def kept_similarities(teacher, student, glue, sentences: int) -> float:
    """Pearson's correlation of two models' cosines."""
    return correlations(*(cosines(folder, glue, sentences) for folder in (student, teacher)))[0]


def main(_) -> None:
    everything = list(range(6))
    cases = [
        *((layers, None, "best") for layers in ([0, 2, 4], [1, 3, 5], [0, 2, 5], [0, 1, 2])),
        *((evenly_spaced_layers(count, 6), None, "best") for count in (4, 3, 2)),
        *((everything, width, how) for width in (256, 192, 128) for how in ("best", "random")),
        (evenly_spaced_layers(3, 6), 192, "best"),
    ]
    theirs = cosines(FLAGS.minilm, FLAGS.data_dir, FLAGS.sentences)
    print(
        "| layers | width | begins with | Pearson | Spearman |\n| --- | ---: | --- | ---: | ---: |"
    )
    for layers, width, projection in cases:
        with tempfile.TemporaryDirectory() as folder:
            make_student(FLAGS.minilm, folder, layers, width, projection)
            found = correlations(cosines(folder, FLAGS.data_dir, FLAGS.sentences), theirs)
        how = projection if width else "the same"
        numbers = " | ".join(f"{value:.2f}" for value in found)
        print(f"| {','.join(map(str, layers))} | {width or 384} | {how} | {numbers} |", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Folder of GLUE, with SST-2 in it.", required=True)
    flags.DEFINE_string("minilm", None, "Folder of MiniLM.", required=True)
    flags.DEFINE_integer("sentences", 200, "Of the dev set.", lower_bound=3)
    app.run(main)
