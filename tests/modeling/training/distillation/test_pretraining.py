"""Pre-training with a teacher: losses against float64 NumPy, and runs of the script."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from modeling import checkpoints
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertModel, BertPretrainer
from modeling.training.distillation.matching import LayerLosses
from modeling.training.distillation.pretraining import ALL, MASKED, TaughtPretrainingLosses
from modeling.training.distillation.teaching import TeachingSettings
from tests.scripts import messages, succeed

SIZES = {"vocab_size": 40, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 24, "initializer_range": 0.3, "type_vocab_size": 2}
STUDENT = BertConfig(hidden_size=8, num_hidden_layers=1, **SIZES)
TEACHER = BertConfig(hidden_size=12, num_hidden_layers=2, **SIZES)
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "far", "away", "dog")


def model(config: BertConfig, seed: int, kind=BertPretrainer):
    keras.utils.set_random_seed(seed)
    made = kind(config)
    made.build()
    return made


def batch() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(5)
    mask = (np.arange(9) < np.array([9, 4, 6])[:, np.newaxis]).astype(np.int32)
    return {
        "input_ids": draw.integers(5, 40, (3, 9)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": 0 * mask,
        "masked_lm_positions": np.array([[1, 5], [2, 0], [3, 4]], np.int32),
        "masked_lm_ids": draw.integers(5, 40, (3, 2)).astype(np.int32),
        "masked_lm_weights": np.array([[1, 1], [1, 0], [1, 1]], np.float32),
        "next_sentence_labels": np.array([[0], [1], [0]], np.int32),
    }


def words(of: BertPretrainer, inputs, positions) -> np.ndarray:
    return of(inputs | {"masked_lm_positions": positions})["masked_lm_logits"].numpy()


@pytest.mark.parametrize("places", [MASKED, ALL, None])
@pytest.mark.parametrize("layers", [False, True])
def test_losses(places, layers):
    student, teacher, inputs = model(STUDENT, 1), model(TEACHER, 2), batch()
    matched = LayerLosses(student, teacher, relations=[(0, 1)]) if layers else None
    settings = TeachingSettings(["t"], teacher_temperature=3.0, label_share=0.3)
    own = PretrainingLosses()
    taught = TaughtPretrainingLosses(own, student, teacher, settings, places, matched)
    outputs = student(inputs)
    losses, metrics = taught(outputs, inputs)
    plain, _ = own(outputs, inputs)

    # What evaluations compare stays what it was.
    masked_lm = float(plain["masked_lm_loss"].result())
    assert float(metrics["masked_lm_loss"].result()) == pytest.approx(masked_lm)
    share = 0.3 if places else 1.0
    assert float(losses["label_loss"].result()) == pytest.approx(share * masked_lm, rel=1e-6)
    expected = float(plain["next_sentence_loss"].result())
    assert float(losses["next_sentence_loss"].result()) == pytest.approx(expected)

    if places:
        positions, counts = inputs["masked_lm_positions"], inputs["masked_lm_weights"]
        if places == ALL:
            positions, counts = np.tile(np.arange(9, dtype=np.int32), (3, 1)), inputs["input_mask"]
        p, q = (
            special.softmax(words(of, inputs, positions).astype(np.float64) / 3, -1)
            for of in (teacher, student)
        )
        kl = 9 * special.rel_entr(p, q).sum(-1)
        expected = 0.7 * (kl * counts).sum() / (counts.sum() + 1e-5)
        assert float(losses["teacher_loss"].result()) == pytest.approx(expected, rel=1e-4)
    assert ("teacher_loss" in losses) == bool(places)
    if layers:
        alone, _ = matched(outputs, inputs)
        expected = float(alone["relation_loss"].result())
        assert float(losses["relation_loss"].result()) == pytest.approx(expected, rel=1e-5)
    known = taught.weights(inputs)
    assert list(known) == list(losses)
    for name, mean in losses.items():
        assert float(known[name]) == pytest.approx(float(mean.weight)), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, a teacher trained on it, and another one without a head that predicts words."""
    folder = tmp_path_factory.mktemp("taught")
    draw = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(draw.choice(WORDS, draw.integers(3, 9))) for _ in range(6))
        for _ in range(40)
    ]
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    for name, config in (("student", STUDENT), ("teacher", TEACHER)):
        values = config.to_dict() | {"vocab_size": len(vocab), "initializer_range": 0.02}
        (folder / f"{name}.json").write_text(json.dumps(values))
    succeed(*command(folder, "teacher", "teacher", "--num_train_steps=20"))
    config = BertConfig.from_json_file(folder / "teacher.json")
    checkpoints.save(model(config, 3, BertModel), folder / "encoder", folder / "vocab.txt")
    (folder / "other.txt").write_text("\n".join([*vocab[:5], *reversed(vocab[5:])]) + "\n")
    checkpoints.save(model(config, 3), folder / "other", folder / "other.txt")
    cased = TextFolding(False)
    checkpoints.save(model(config, 3), folder / "cased", folder / "vocab.txt", folding=cased)
    return folder


def command(folder, config, out, *more):
    return (
        "run_pretraining.py",
        f"--corpus_file={folder}/corpus.txt",
        f"--bert_config_file={folder}/{config}.json",
        f"--vocab_file={folder}/vocab.txt",
        f"--output_dir={folder}/{out}",
        *("--do_train", "--max_seq_length=24", "--max_predictions_per_seq=4", "--log_steps=2"),
        *("--train_batch_size=8", "--num_warmup_steps=2", "--save_checkpoints_steps=4", *more),
    )


def rows(folder, out) -> list[dict]:
    lines = (folder / out / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "train"]


@pytest.mark.slow
def test_a_run_with_a_teacher(folder):
    """Interrupted and resumed it ends with the same weights."""
    taught = (f"--teacher={folder}/teacher", "--match_relations=even", "--num_train_steps=8")
    for out in ("whole", "parted"):
        succeed(*command(folder, "student", out, *taught, "--do_eval"))
    first = rows(folder, "whole")[0]
    parts = ("label_loss", "next_sentence_loss", "teacher_loss", "relation_loss")
    assert first["loss"] == pytest.approx(sum(first[name] for name in parts), rel=1e-4)
    assert first["label_loss"] == pytest.approx(0.5 * first["masked_lm_loss"], rel=1e-4)
    results = (folder / "whole/eval_results.txt").read_text()
    assert "masked_lm_loss" in results and "teacher" not in results
    for path in [*(folder / "parted").glob("model.ckpt-8.*")]:
        path.unlink()
    log = succeed(*command(folder, "student", "parted", *taught, "--do_eval"))
    assert "step 4, because --output_dir holds a checkpoint" in log
    whole, again = (
        tf.train.load_checkpoint(str(folder / out / "model.ckpt-8")) for out in ("whole", "parted")
    )
    for name in whole.get_variable_to_shape_map():
        np.testing.assert_array_equal(whole.get_tensor(name), again.get_tensor(name), name)


@pytest.mark.slow
def test_packed_and_masked_anew(folder):
    taught = (f"--teacher={folder}/teacher", "--teacher_places=all", "--label_share=0")
    more = ("--objective=mlm", "--pack_sequences", "--dynamic_masking", "--num_train_steps=8")
    succeed(*command(folder, "student", "packed", *taught, *more, "--match_relations=0:1"))
    assert rows(folder, "packed")[-1]["teacher_loss"] > 0
    # Without a head for words its layers teach alone.
    encoder = (f"--teacher={folder}/encoder", "--match_relations=0:1", "--num_train_steps=4")
    log = succeed(*command(folder, "student", "layers", *encoder))
    assert "its layers teach alone" in log
    last = rows(folder, "layers")[-1]
    assert "teacher_loss" not in last
    assert last["label_loss"] == pytest.approx(last["masked_lm_loss"], rel=1e-4)


@pytest.mark.slow
def test_what_is_refused(folder):
    run = command(folder, "student", "refused", "--num_train_steps=4")[1:]
    idle = "--match_relations=0:0 --label_share=1 --teacher_temperature=9"
    said = messages(
        "run_pretraining.py",
        [*run, "--label_share=0.1"],
        [*run, f"--teacher={folder}/encoder"],
        [*run, f"--teacher={folder}/encoder", "--match_relations=0:0", "--label_share=0.1"],
        [*run, *f"--teacher={folder}/teacher {idle}".split()],
        [*run, f"--teacher={folder}/other"],
        [*run, f"--teacher={folder}/cased"],
        [*run, f"--teacher={folder}/teacher,{folder}/teacher"],
        [*run, f"--teacher={folder}/teacher", "--objective=ltr"],
        [*run, f"--teacher={folder}/teacher", "--match_relations=1:0"],
    )
    parts = (
        "--label_share says how",
        "no words to teach",
        "leave --label_share, --teacher_temperature and",
        "--teacher_temperature says how the teacher's answers",
        "of another vocabulary",
        "do_lower_case False",
        "names 2",
    )
    parts += ("left_to_right", "--match_relations has '1:0'")
    for text, part in zip(said, parts, strict=True):
        assert part in text, text
