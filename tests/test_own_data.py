"""run_classifier.py on own files, choices and with the search, as a user runs it."""

import csv
import json
import signal
import time

import numpy as np
import pytest

from tests.scripts import Script, fail, messages, run, succeed

WORDS = ["good", "bad", "film", "the", "a", "was", "very", "plot", "and"]


def _vocabulary(folder):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))


def _texts(count, seed, longest=9):
    """Sentences with "good" or "bad" in them, and which of the two."""
    draw = np.random.default_rng(seed)
    rows = []
    for label in draw.integers(0, 2, count):
        words = list(draw.choice(WORDS[2:], draw.integers(2, longest)))
        words.insert(draw.integers(0, len(words)), WORDS[label])
        rows.append((" ".join(words), WORDS[label]))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    _vocabulary(folder)
    rows = _texts(300, 0)
    with open(folder / "train.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "text", "verdict"])
        # Texts over two lines, as comments of users are.
        writer.writerows(
            [i, text.replace(" ", "\n", 1), label] for i, (text, label) in enumerate(rows)
        )
    lines = ["text\tverdict", *("\t".join(row) for row in _texts(40, 1))]
    (folder / "dev.tsv").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"text": text, "verdict": label}) for text, label in _texts(30, 2)]
    (folder / "other.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"text": text}) for text, _ in _texts(20, 3)]
    (folder / "test.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def command(folder, out, *more, task="delimited"):
    return (
        "run_classifier.py",
        f"--task_name={task}",
        f"--data_dir={folder}",
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=16", "--eval_batch_size=16", "--train_batch_size=16", *more),
    )


COLUMNS = ("--text_columns=text", "--label_column=verdict")
TRAIN = ("--do_train", "--train_file=train.csv", "--learning_rate=3e-3", "--num_train_epochs=4")


def results(path):
    lines = path.read_text().splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


@pytest.mark.slow
def test_own_files_from_training_to_predictions(folder):
    # A file to predict that says what is right, but for one line that isn't JSON.
    (folder / "again.jsonl").write_text((folder / "other.jsonl").read_text() + "{\n")
    log = succeed(
        *command(folder, "out", *COLUMNS, *TRAIN, "--train_batch_tokens=256"),
        *("--class_weights=balanced", "--do_eval", "--dev_file=dev.tsv,other.jsonl"),
        *("--do_predict", "--test_file=again.jsonl", "--skip_bad_rows"),
    )
    out = folder / "out"
    assert "Left out 1 of 31 rows" in log
    scored, evaluated = (
        results(out / name) for name in ("test_results.txt", "eval_results_dev_other.txt")
    )
    assert scored["test_accuracy"] == evaluated["eval_accuracy"]
    assert abs(scored["test_loss"] - evaluated["eval_loss"]) < 1e-5
    assert scored["skipped_rows"] == 1 and "skipped_rows" not in evaluated
    assert "30" in (out / "class_report_test.txt").read_text()
    table = (out / "predictions.tsv").read_text().splitlines()
    assert len(table) == 31 and table[0].split("\t")[:3] == ["id", "gold", "label"]
    assert "Labels found" in log and "bad, good" in log
    for end, count in (("", 40), ("_dev_other", 30)):
        assert results(out / f"eval_results{end}.txt")["eval_accuracy"] > 0.9
        assert str(count) in (out / f"class_report{end}.txt").read_text()
        assert (out / f"confusion{end}.png").read_bytes().startswith(b"\x89PNG")
        header, *wrong = (out / f"errors{end}.tsv").read_text().splitlines()
        assert header.startswith("source\tid\tgold\tpredicted") and len(wrong) < 4

    # The labels were saved with the model, and the pieces with the run.
    log = succeed(
        *command(folder, "out", "--text_columns=text", "--do_predict", "--test_file=test.jsonl"),
        "--do_export",
    )
    header, *rows = [
        line.split("\t") for line in (out / "predictions.tsv").read_text().splitlines()
    ]
    assert header == ["id", "label", "bad", "good"]
    right = [row[1] == gold for row, (_, gold) in zip(rows, _texts(20, 3), strict=True)]
    assert np.mean(right) > 0.9
    assert json.loads((out / "export/1/assets/labels.json").read_text()) == ["bad", "good"]
    assert {path.name.split("-")[0] for path in (out / "features").iterdir()} >= {"train", "test"}


@pytest.mark.slow
def test_windows_regression_labels_and_choices(folder):
    """The other kinds of tasks run through: training, evaluation, prediction, export."""
    rows = _texts(120, 4, longest=50)
    with open(folder / "numbers.jsonl", "w") as file:
        for text, label in rows:
            both = {"text": text, "score": 3.5 if label == "good" else 1.0}
            file.write(
                json.dumps(both | {"tags": sorted({*text.split()} & {"plot", label})}) + "\n"
            )
    with open(folder / "choices.jsonl", "w") as file:
        for number, (text, label) in enumerate(rows):
            choices = [text, "the plot was " + WORDS[label == "good"], "a film"][: 2 + number % 2]
            file.write(json.dumps({"context": "very", "choices": choices, "label": 0}) + "\n")
    own = ("--train_file=numbers.jsonl", "--dev_file=numbers.jsonl", "--test_file=numbers.jsonl")
    everything = ("--do_train", "--do_eval", "--do_predict", "--do_export", "--num_train_epochs=2")
    windows = ("--long_text=windows", "--window_stride=6")
    choices = [flag.replace("numbers", "choices") for flag in own]
    regression = ("--label_column=score", "--label_kind=regression", "--text_columns=text")
    several = ("--label_column=tags", "--text_columns=text", "--window_pooling=max")
    lines = (
        command(folder, "numbers", *own, *everything, *windows, *regression),
        command(folder, "tags", *own, *everything, *windows, *several),
        command(folder, "choices", *choices, *everything, task="multiple_choice"),
    )
    assert messages("run_classifier.py", *(line[1:] for line in lines)) == ["", "", ""]
    for name, metric in (("numbers", "pearson"), ("tags", "micro_f1"), ("choices", "accuracy")):
        assert f"eval_{metric}" in results(folder / name / "eval_results.txt")
        assert len((folder / name / "predictions.tsv").read_text().splitlines()) == 121
        assert (folder / name / "export/1/saved_model.pb").exists()


SEARCH = ("--learning_rates=3e-3,1e-5", "--num_runs=2", "--num_train_steps=30")


def kill_at(line, text):
    """Runs a command until it has said something, then kills it."""
    script = Script(*line)
    while text not in script.read("stderr") and script.poll() is None:
        time.sleep(0.01)
    script.send_signal(signal.SIGKILL)
    script.wait()


@pytest.mark.slow
@pytest.mark.hours
def test_search_killed_half_way_gives_the_same_table(folder):
    flags = (*COLUMNS, *TRAIN, *SEARCH, "--dev_file=dev.tsv", "--do_eval", "--log_steps=5")
    log = succeed(*command(folder, "search", *flags))
    table = (folder / "search/search.tsv").read_text()
    rows = [line.split("\t") for line in table.splitlines()]
    assert rows[0][:4] == ["learning_rate", "batch_size", "num_epochs", "seed"] and len(rows) == 5
    values = [float(row[rows[0].index("value")]) for row in rows[1:]]
    best = [row[rows[0].index("best")] for row in rows[1:]]
    assert best.index("True") == int(np.argmax(values)) and best.count("True") == 1
    assert results(folder / "search/eval_results.txt")["eval_accuracy"] == max(values)
    assert "mean" in log and "lr 0.003, batch 16, epochs 4" in log
    assert (folder / "search/search.png").exists()

    # Killed in the second run, started again.
    kill_at(command(folder, "killed", *flags), "run 2 of 4")
    log = succeed(*command(folder, "killed", *flags))
    assert "1 of 4 runs are finished" in log
    assert (folder / "killed/search.tsv").read_text() == table
    # The best weights are there for later use, those of the runs are not.
    assert not list((folder / "killed/runs").glob("*/model.ckpt*"))
    log = run(
        *command(folder, "killed", "--text_columns=text", "--do_predict", "--test_file=test.jsonl")
    )
    assert log.returncode == 0 and "best eval_accuracy" in log.stderr


def test_bad_input_is_named(folder):
    (folder / "empty.tsv").write_text("")
    (folder / "short.tsv").write_text("text\tverdict\ngood film\tgood\nbad film\n")
    (folder / "unknown.tsv").write_text("text\tverdict\ngood film\tfine\n")
    (folder / "words.tsv").write_text("text\tverdict\ngood film\thigh\n")
    (folder / "twice.tsv").write_text("id\ttext\tverdict\n1\ta\tgood\n2\tb\tbad\n1\tc\tbad\n")
    (folder / "long.csv").write_text(f'text,verdict\n"{"good film " * 1_000_000}",good\nbad,bad\n')

    def line(train, *more):
        files = ("--do_train", f"--train_file={train}", "--num_train_steps=1")
        return command(folder, f"bad-{train}", *files, *COLUMNS, *more)[1:]

    dev = ("--do_eval", "--dev_file=unknown.tsv")
    lines = {
        ("'tekst'", "'name', 'text', 'verdict'"): line("train.csv", "--text_columns=tekst"),
        ("empty.tsv",): line("empty.tsv"),
        ("short.tsv:3", "1", "2"): line("short.tsv"),
        ("unknown.tsv:2", "fine", "bad, good"): line("train.csv", *dev),
        ("words.tsv:2", "high"): line("words.tsv", "--label_kind=regression"),
        ("twice.tsv:2", "twice.tsv:4"): line("twice.tsv", "--id_column=id"),
        (): line("long.csv"),
        ("--test_file",): line("train.csv", "--do_predict"),
        ("--class_weights",): line("train.csv", "--class_weights=1,heavy"),
        ("--learning_rates", "fast"): line("train.csv", "--learning_rates=fast"),
    }
    said = messages("run_classifier.py", *lines.values())
    for expected, message in zip(lines, said, strict=True):
        assert bool(message) == bool(expected), (expected, message)
        assert all(part in message for part in expected), (expected, message)


def minilm_command(minilm, out, *more):
    return (
        "run_classifier.py",
        f"--vocab_file={minilm}/vocab.txt",
        f"--bert_config_file={minilm}/config.json",
        f"--init_checkpoint={minilm}/model.safetensors",
        f"--output_dir={out}",
        *("--do_train", "--do_eval", "--eval_batch_size=32", "--dtype=auto", *more),
    )


@pytest.mark.slow
@pytest.mark.hours
def test_search_on_rte_killed_half_way_gives_the_same_table(shared_data, minilm, tmp_path):
    """Real weights: two learning rates with two seeds, a few steps each."""
    flags = ("--task_name=RTE", f"--data_dir={shared_data}/glue/RTE", "--max_seq_length=64")
    flags += ("--learning_rates=5e-5,2e-5", "--num_runs=2", "--num_train_steps=4")
    succeed(*minilm_command(minilm, tmp_path / "whole", *flags), timeout=900)
    kill_at(minilm_command(minilm, tmp_path / "killed", *flags), "run 3 of 4")
    log = succeed(*minilm_command(minilm, tmp_path / "killed", *flags), timeout=900)
    assert "2 of 4 runs are finished" in log
    for name in ("search.tsv", "search_settings.tsv", "eval_results.txt", "search.png"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.hours
def test_codah_and_chinese_reviews(shared_data, minilm, tmp_path):
    """Real sets of the other kinds: MiniLM on CODAH, a new small model on ChnSentiCorp."""
    flags = ("--task_name=codah", f"--data_dir={shared_data}/swag/codah/data/cv_split/fold_0")
    flags += ("--num_train_steps=100", "--train_batch_size=16", "--learning_rate=1e-4")
    succeed(*minilm_command(minilm, tmp_path / "codah", *flags), timeout=900)
    assert results(tmp_path / "codah/eval_results.txt")["eval_accuracy"] > 0.3  # chance: 0.25

    vocab = shared_data / "vocab/bert-chinese/vocab.txt"
    config = {"vocab_size": 21128, "hidden_size": 64, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 128, "type_vocab_size": 2}
    # Without pre-training the original's 0.02 is too little to learn from.
    config |= {"initializer_range": 0.1, "hidden_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    succeed(
        "run_classifier.py",
        "--task_name=delimited",
        f"--data_dir={shared_data}/chinese/chnsenticorp",
        *("--train_file=train.tsv", "--dev_file=dev.tsv", "--test_file=test.tsv"),
        *("--text_columns=text_a", "--label_column=label", f"--vocab_file={vocab}"),
        f"--bert_config_file={tmp_path}/config.json",
        f"--output_dir={tmp_path}/chinese",
        *("--do_train", "--do_eval", "--do_predict", "--num_train_steps=600"),
        *(
            "--optimizer=adamw",
            "--learning_rate=1e-3",
            "--eval_batch_size=32",
            "--predict_batch_size=32",
        ),
        timeout=900,
    )
    assert results(tmp_path / "chinese/eval_results.txt")["eval_accuracy"] > 0.8
    assert len((tmp_path / "chinese/predictions.tsv").read_text().splitlines()) == 1201


@pytest.mark.slow
def test_files_as_a_spreadsheet_writes_them(folder):
    """Semicolons, Windows' encoding, part of the rows; the export takes the file as it is."""
    rows = [(f"{text} é", label) for text, label in _texts(80, 4)]
    lines = ["Body;Verdict", *(f'"{text}; so";{label}' for text, label in rows)]
    (folder / "sheet.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    form = ("--delimiter=semicolon", "--encoding=cp1252")
    columns = ("--text_columns=Body", "--label_column=Verdict", "--train_file=sheet.csv")
    more = (*columns, "--do_train", "--do_eval", "--do_export", "--num_train_epochs=1")
    more += ("--dev_fraction=0.2", "--max_train_examples=24", "--max_eval_examples=10")
    message = fail(*command(folder, "sheet", *more, form[0]))
    assert "sheet.csv:2: found the bytes" in message and "--encoding=cp1252" in message
    message = fail(*command(folder, "sheet", *more, form[1]))
    assert (
        "sheet.csv:2: the row that begins here isn't CSV" in message
        and "--delimiter=semicolon" in message
    )
    log = succeed(*command(folder, "sheet", *more, *form, "--max_seq_length=8"))
    assert "train: the first 24 of 64 examples (--max_train_examples)" in log
    assert "dev: the first 10 of 16 examples (--max_eval_examples)" in log
    assert "of 24 texts are cut, since they are longer than --max_seq_length=8" in log
    assert "--max_seq_length=16 would hold 100.0 % of them whole. --long_text" in log
    # Not another run without saying so.
    message = fail(*command(folder, "sheet", *more, *form, "--max_train_examples=32"))
    assert "train_file has another content" in message

    predict = ("-m", "modeling.predict", f"--saved_model={folder}/sheet/export", *form)
    output = f"--output_file={folder}/answers.jsonl"
    succeed(*predict, f"--input_file={folder}/sheet.csv", output)
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [answer["Verdict"] for answer in answers] == [label for _, label in rows]
    assert {answer["label"] for answer in answers} <= {"good", "bad"}
    (folder / "else.csv").write_text("Text;Verdict\nx;good\n")
    message = fail(*predict, f"--input_file={folder}/else.csv", output)
    assert "text_a, or the columns it was trained on, Body; it has no text_a" in message
    assert "The header is 'Text', 'Verdict'" in message
