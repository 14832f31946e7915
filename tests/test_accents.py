"""A lower-cased model that keeps accents: every script reads its texts so, from its folder alone.

Words differ in nothing but an accent, so a script that stripped it could tell none from another.
"""

import json
import random

import keras
import numpy as np
import pytest

from modeling import checkpoints
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.models import BertModel
from tests.fine_tuning.tiny_tasks import results
from tests.scripts import fail, run, succeed

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["das", "kleid", "ist", "wie", "schon", "schön", "?", ".", "oder", "nicht"]
TRAIN = ("--do_train", "--do_eval", "--train_batch_size=16", "--learning_rate=0.003")
REFUSED = "--strip_accents is True, but the model's own files say False"
TRAIN += ("--max_seq_length=24", "--warmup_proportion=0", "--num_train_steps=150")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model without task, and data of three tasks."""
    folder = tmp_path_factory.mktemp("accents")
    tokens = SPECIAL + WORDS
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 32}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    keras.utils.set_random_seed(0)
    model = BertModel(BertConfig(vocab_size=len(tokens), **sizes))
    folding = TextFolding(True, strip_accents=False)
    checkpoints.save(model, folder / "model", folder / "vocab.txt", folding=folding)
    draw = random.Random(1)
    for name in ("train", "dev"):
        rows, tagged, asked = ["text\tlabel"], "", []
        for number in range(80):
            words = draw.choices(["das", "Kleid", "IST", "oder"], k=draw.randrange(1, 5))
            words.insert(draw.randrange(len(words) + 1), ("Schon", "SCHÖN")[number % 2])
            rows.append(f"{' '.join(words)}\t{number % 2}")
            tagged += "".join(f"{w} {'B-X' if w == 'SCHÖN' else 'O'}\n" for w in words) + "\n"
            both = draw.sample(["Schon", "SCHÖN"], 2)
            context = f"das {both[0]} oder {both[1]}"
            answer = {"text": "SCHÖN", "answer_start": context.index("SCHÖN")}
            question = {"id": str(number), "question": "wie?", "answers": [answer]}
            asked.append({"context": context, "qas": [question]})
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
        (folder / f"{name}.txt").write_text(tagged)
        questions = {"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]}
        (folder / f"{name}.json").write_text(json.dumps(questions))
    return folder


def told(out) -> dict:
    return json.loads((out / "tokenizer_config.json").read_text())


def classifier(folder, out, init, *more):
    names = ("--task_name=delimited", "--text_columns=text", "--label_column=label")
    return (
        *("run_classifier.py", *names, f"--data_dir={folder}", "--max_seq_length=24"),
        *(f"--init_checkpoint={folder}/{init}", f"--output_dir={folder}/{out}", *more),
    )


@pytest.mark.slow
def test_classifier_from_training_to_its_export(folder):
    files = ("--train_file=train.tsv", "--dev_file=dev.tsv")
    succeed(*classifier(folder, "classes", "model", *TRAIN, *files))
    assert told(folder / "classes")["do_lower_case"] is True
    assert told(folder / "classes")["strip_accents"] is False
    do = ("--do_predict", "--test_file=dev.tsv", "--do_export")
    succeed(*classifier(folder, "again", "classes", *do))
    scores = [
        results(folder / out) for out in ("classes/eval_results.txt", "again/test_results.txt")
    ]
    assert scores[0]["eval_accuracy"] == scores[1]["test_accuracy"]
    texts = ("das Kleid SCHÖN", "das kleid schön", "das Kleid SCHON")
    lines = [json.dumps({"text_a": text}) for text in texts]
    asked = ("-m", "modeling.predict", f"--saved_model={folder}/again/export")
    answers = run(*asked, stdin="\n".join(lines)).stdout.splitlines()
    upper, lower, plain = (json.loads(answer)["probabilities"] for answer in answers)
    assert upper == pytest.approx(lower, abs=1e-6) and upper != pytest.approx(plain, abs=1e-4)


def test_contradictions_are_refused(folder):
    files = ("--train_file=train.tsv", "--dev_file=dev.tsv")
    said = fail(*classifier(folder, "other", "model", *TRAIN, *files, "--strip_accents"))
    assert said.startswith(REFUSED)
    assert not (folder / "other").exists()
    # Nor does a run go on with other pieces.
    (folder / "begun").mkdir()
    (folder / "begun" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    said = fail(*classifier(folder, "begun", "model", *TRAIN, *files))
    assert "of another model: it says do_lower_case True, strip_accents None, and here is" in said


def test_tags(folder):
    files = (f"--data_dir={folder}", "--train_file=train.txt", "--dev_file=dev.txt")
    line = (f"--init_checkpoint={folder}/model", f"--output_dir={folder}/tags", *files)
    succeed("run_ner.py", *line, *TRAIN)
    assert results(folder / "tags" / "eval_results.txt")["eval_f1"] == 1
    assert told(folder / "tags")["strip_accents"] is False


def test_answers(folder):
    sizes = ("--doc_stride=8", "--max_query_length=8")
    files = (f"--train_file={folder}/train.json", f"--predict_file={folder}/dev.json")
    line = (f"--init_checkpoint={folder}/model", f"--output_dir={folder}/answers", *files)
    succeed("run_squad.py", *line, *TRAIN[:1], *TRAIN[2:], "--do_predict", *sizes)
    answers = json.loads((folder / "answers" / "predictions.json").read_text())
    # Answers are slices of the text as it is written.
    assert set(answers.values()) == {"SCHÖN"}
    assert told(folder / "answers")["strip_accents"] is False


def test_vectors(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("Schön\nSCHÖN\nSchon\nSCHO\u0308N\n")
    line = ("-m", "modeling.extract_features", f"--input_file={tmp_path}/texts.txt")
    line += (f"--output_file={tmp_path}/made.npy", "--output_format=numpy", "--pooling=mean")
    line += ("--max_seq_length=24", "--layers=-1")
    succeed(*line, f"--init_checkpoint={folder}/model")
    same, other, plain, decomposed = np.load(tmp_path / "made.npy")
    np.testing.assert_allclose(same, other, atol=1e-6)
    assert abs(same - plain).max() > 1e-3
    # A vocabulary has one of the two ways to write it.
    assert abs(same - decomposed).max() > 1e-3
    said = fail(*line, f"--init_checkpoint={folder}/model", "--strip_accents=true")
    assert said.startswith(REFUSED)


@pytest.mark.slow
def test_pretraining(folder):
    (folder / "corpus.txt").write_text(("Schön oder\nschon. Nicht\n\nDas KLEID\nist SCHÖN\n\n") * 9)
    config = BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    (folder / "config.json").write_text(config.to_json_string())
    line = (f"--corpus_file={folder}/corpus.txt", f"--bert_config_file={folder}/config.json")
    line += ("--do_train", "--max_seq_length=24", "--max_predictions_per_seq=4", "--dupe_factor=2")
    line += ("--num_train_steps=2", "--num_warmup_steps=1", "--train_batch_size=4")
    line = ("run_pretraining.py", *line)
    for strip in ("true", "false"):
        out = folder / f"pretrained_{strip}"
        succeed(*line, f"--output_dir={out}", f"--strip_accents={strip}")
        assert ("schön" in (out / "vocab.txt").read_text().split()) == (strip == "false")
        assert told(out)["strip_accents"] is (strip == "true")
    said = fail(*line, f"--output_dir={out}", "--strip_accents=true", "--num_train_steps=4")
    assert said.startswith(REFUSED)
