"""run_ner.py as a user runs it: a task that can be learned, searches, odd and bad files."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.scripts import fail, messages, served, succeed

CLIENT = """
def answer(loaded, asked):
    width = max(map(len, asked))
    given = loaded.signatures["words"](
        words=tf.constant([words + [""] * (width - len(words)) for words in asked]))
    text = loaded.signatures["serving_default"](text=tf.constant(list(map(" ".join, asked))))
    tags = [[tag.decode() for tag in row[:len(words)]]
            for row, words in zip(given["tags"].numpy(), asked)]
    texts = [[t.decode() for t in row if t] for row in text["entity_texts"].numpy()]
    return {"tags": tags, "entity_texts": texts}
"""
CITIES, PEOPLE = ["bonn", "rome", "oslo", "lima"], ["ann", "bob", "eve", "joe"]
OTHER = ["in", "went", "to", "from", "the", "sea", "was", "mr"]


def draw_sentences(count, seed):
    """Words and IOB1 tags: cities and people, also of two words, some directly after another."""
    draw = np.random.default_rng(seed)
    sentences = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(draw.integers(2, 8)):
            kind = draw.integers(0, 4)
            if kind > 1:
                words.append(str(draw.choice(OTHER)))
                tags.append("O")
                continue
            name, pool = (("LOC", CITIES), ("PER", PEOPLE))[kind]
            size = draw.integers(1, 3)
            again = tags and tags[-1][2:] == name
            if again:
                # Words alone don't tell where the next entity begins.
                words.append("the")
                tags.append("O")
            words += [str(word) for word in draw.choice(pool, size)]
            tags += [f"I-{name}"] * size
        sentences.append((words, tags))
    return sentences


def columns(sentences):
    text = "-DOCSTART- -X- O\n\n"
    for number, (words, tags) in enumerate(sentences):
        text += "".join(f"{word} x {tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
        text += "-DOCSTART- -X- O\n\n" * (number % 10 == 9)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ner")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CITIES, *PEOPLE, *OTHER, "##s"]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 32, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    for name, count, seed in (("train", 400, 0), ("dev", 40, 1), ("test", 30, 2)):
        (folder / f"{name}.txt").write_text(columns(draw_sentences(count, seed)))
    return folder


def command(folder, out, *more):
    return (
        "run_ner.py",
        f"--data_dir={folder}",
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=16", "--train_batch_size=16", "--learning_rate=2e-3", *more),
    )


FILES = ("--train_file=train.txt", "--dev_file=dev.txt", "--test_file=test.txt")


def results(path):
    lines = (line.split(" = ") for line in path.read_text().splitlines())
    return {key: float(value) for key, value in lines}


@pytest.fixture(scope="module")
def trained(folder):
    """The log of a training; what it left is in folder/a."""
    do = ("--do_train", "--do_eval", "--do_predict", "--do_export")
    return succeed(*command(folder, "a", *FILES, *do, "--num_train_epochs=25", "--eval_steps=200"))


@pytest.mark.slow
def test_learns_and_is_exported(folder, trained):
    out, log = folder / "a", trained
    scores = results(out / "eval_results.txt")
    assert scores["eval_f1"] > 0.97 and scores["eval_accuracy"] > 0.97, scores
    assert set(scores) >= {"eval_loss", "eval_precision", "eval_recall", "global_step", "loss"}
    assert results(out / "test_results.txt")["test_f1"] > 0.97
    assert "tags in IOB1" in log and "dev set at step 200" in log
    rows = [line.split() for line in (out / "eval_report.txt").read_text().splitlines()]
    assert [row[0] for row in rows] == ["precision", "LOC", "PER", "all"]
    assert (out / "training.png").exists()

    # Words and gold tags as they were, one prediction for each, entities of the predictions.
    sentences = draw_sentences(30, 2)
    blocks = (out / "predictions.txt").read_text().strip("\n").split("\n\n")
    entities = [json.loads(line) for line in (out / "entities.jsonl").read_text().splitlines()]
    predicted = []
    for (words, tags), block, row in zip(sentences, blocks, entities, strict=True):
        found, gold, guess = zip(*map(str.split, block.split("\n")), strict=True)
        assert list(found) == words and row["text"] == " ".join(words)
        assert [tag[2:] for tag in gold] == [tag[2:] for tag in tags]
        begins = sum(tag[0] == "B" for tag in guess)
        assert len(row["entities"]) >= begins
        for entity in row["entities"]:
            assert row["text"][entity["start"] : entity["end"]] == entity["text"]
            assert guess[entity["start_word"]][2:] == entity["type"]
            inside = row["scores"][entity["start_word"] : entity["end_word"]]
            assert entity["score"] == min(inside) > 1 / 7
        predicted.append(list(guess))

    answers = served(CLIENT, out / "export" / "1", [words for words, _ in sentences], folder)
    assert answers["tags"] == predicted
    assert answers["entity_texts"] == [[e["text"] for e in row["entities"]] for row in entities]


@pytest.mark.slow
@pytest.mark.hours
def test_features_of_a_frozen_model(folder, trained, tmp_path):
    """The paper's section 5.3, from those weights."""
    do = ("--do_train", "--do_eval", "--do_predict", "--do_export", "--num_train_steps=40")
    frozen = ("--feature_based", "--feature_layers=last", f"--init_checkpoint={folder}/a")
    frozen += ("--optimizer=adamw", "--learning_rate=1e-3")
    log = succeed(*command(folder, "frozen", *FILES, *do, *frozen))
    out = folder / "frozen"
    assert log.count("Computing the vectors") == 3
    assert results(out / "test_results.txt")["test_f1"] > 0.8
    names = {
        name for name, _ in tf.train.list_variables(str(next(out.glob("model.ckpt-*.index")))[:-6])
    }
    assert not any(name.startswith("bert/") for name in names)

    # Without training: the tagger of the output folder, the vectors from disk.
    (out / "predictions.txt").rename(out / "before.txt")
    log = succeed(*command(folder, "frozen", "--test_file=test.txt", "--do_predict", *frozen))
    assert "Computing the vectors" not in log and "Vectors of 30 rows of test: from" in log
    assert (out / "before.txt").read_text() == (out / "predictions.txt").read_text()
    sentences = [words for words, _ in draw_sentences(30, 2)]
    blocks = (out / "predictions.txt").read_text().strip("\n").split("\n\n")
    predicted = [[line.split()[2] for line in block.split("\n")] for block in blocks]
    assert served(CLIENT, out / "export" / "1", sentences, tmp_path)["tags"] == predicted
    ask = tf.saved_model.load(str(out / "export" / "1")).signatures["tokenized"]
    shape = {name: tf.ones([1, 3], tf.int32) for name in ("input_mask", "segment_ids")}
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_ids"):
        ask(input_ids=tf.constant([[2, -1, 3]]), **shape)
    assert (out / "export/1/assets/bert_config.json").exists()
    assert "--init_checkpoint" in fail(*command(folder, "none", "--do_export", "--feature_based"))
    idle = ("--do_train", "--freeze_layers=1")
    assert "change nothing" in fail(*command(folder, "none", *FILES, *idle, *frozen))


@pytest.mark.slow
def test_other_files_context_search_and_bad_input(folder):
    few = ("--num_train_steps=30", "--num_train_epochs=1")
    write = {
        "words.txt": "ann\n\u200b\nbonn",
        "crlf.txt": columns(draw_sentences(5, 5)).replace("\n", "\r\n").rstrip() + "\r\n",
        "narrow.txt": "ann x I-PER\nbonn\n",
        "one.txt": "ann\nbonn\n",
        "bad.txt": "ann x PERSON\n",
        "empty.txt": "",
        "plain.txt": "ann x O\nin x O\n",
        "unseen.txt": "ann x B-PER\nbonn x I-LOC\nrome x B-GPE\n\nin x O",
        "long.txt": "ann x I-PER\n" * 60 + f"{'漢' * 100} x O\n{'a' * 1000} x O\n",
    }
    for name, content in write.items():
        (folder / name).write_bytes(content.encode())
    odd = [["", "\u200b", "ann", "b\nonn", "漢字x"] * 9, [], ["rome"]]
    rows = [json.dumps({"tokens": words, "document": 1}) for words in odd]
    (folder / "odd.jsonl").write_text("\n".join(rows))

    train = ("--do_train", *FILES[:2], *few)
    predict = ("--do_predict", "--document_context")
    lines = {
        "trained": command(folder, "b", *train, "--document_context", "--model_scheme=iobes"),
        "jsonl": command(folder, "b", *predict, "--test_file=odd.jsonl"),
        "words": command(folder, "b", "--do_predict", "--test_file=words.txt"),
        "eval": command(
            folder, "b", "--do_eval", "--dev_file=unseen.txt", "--length_buckets=false"
        ),
        "crlf": command(folder, "c", "--do_train", "--train_file=crlf.txt", "--num_train_steps=2"),
        "long": command(folder, "c", "--do_predict", "--test_file=long.txt", "--window_stride=2"),
        "search": command(
            folder, "d", *train, "--do_eval", "--learning_rates=3e-3,1e-3", "--num_runs=2"
        ),
        "found": command(folder, "d", "--do_predict", "--test_file=test.txt"),
        "nothing": command(folder, "e", *FILES),
        "no file": command(folder, "e", "--do_train"),
        "no dev": command(folder, "e", "--do_train", "--train_file=train.txt", "--num_runs=2"),
        "narrow": command(folder, "e", "--do_train", "--train_file=narrow.txt"),
        "one": command(folder, "e", "--do_train", "--train_file=one.txt"),
        "bad": command(folder, "e", "--do_train", "--train_file=bad.txt"),
        "empty": command(folder, "e", "--do_train", "--train_file=empty.txt"),
        "plain": command(folder, "e", "--do_train", "--train_file=plain.txt"),
        "absent": command(folder, "e", "--do_train", "--train_file=absent.txt"),
        "column": command(folder, "e", *train, "--tag_column=7"),
        "scheme": command(folder, "e", *train, "--scheme=bmes"),
        "labels": command(folder, "e", "--do_predict", "--test_file=test.txt"),
        "metric": command(folder, "e", *train, "--eval_steps=5", "--best_metric=f1"),
        "stride": command(folder, "e", *train, "--window_stride=15"),
        "length": command(folder, "e", *train, "--max_seq_length=65"),
    }
    said = messages("run_ner.py", *(line[1:] for line in lines.values()), timeout=600)
    said = dict(zip(lines, said, strict=True))
    for name in ("trained", "jsonl", "words", "eval", "crlf", "long", "search", "found"):
        assert said[name] == "", name
    expected = {
        "nothing": "--do_train, --do_eval",
        "no file": "--train_file is missing",
        "no dev": "--dev_file is missing",
        "narrow": "narrow.txt:2",
        "one": "one.txt:1: there is no column -1",
        "bad": "bad.txt:1: the tag is 'PERSON'",
        "empty": "empty.txt holds no sentence",
        "plain": "plain.txt: not one of 1 sentences has an entity",
        "absent": "absent.txt can't be read",
        "column": "no column 7",
        "scheme": "the tag is 'I-",
        "labels": "labels.json can't be read",
        "metric": "eval_f1",
        "stride": "window stride is 15",
        "length": "--max_seq_length is 65",
    }
    for name, words in expected.items():
        assert words in said[name], (name, said[name])

    labels = json.loads((folder / "b" / "labels.json").read_text())
    assert labels["scheme"] == "iobes" and len(labels["labels"]) == 9
    # The last prediction of b is of words.txt: no gold tags, no scores, a tag for every word.
    lines = (folder / "b" / "predictions.txt").read_text().split("\n")
    assert [line.split(" ")[0] for line in lines] == ["ann", "\u200b", "bonn", "", ""]
    assert lines[1].split(" ")[1] == "O" and not (folder / "b" / "test_results.txt").exists()
    # Tags that training lacked count as entities that weren't found.
    rows = (folder / "b" / "eval_report.txt").read_text().splitlines()
    assert rows[1].split() == ["GPE", "0.0000", "0.0000", "0.0000", "1", "0"]
    lines = (folder / "c" / "predictions.txt").read_text().split("\n")
    assert len(lines) == 62 + 2 and all(len(line.split(" ")) == 3 for line in lines[:62])
    search = (folder / "d" / "search.tsv").read_text().splitlines()
    assert len(search) == 5 and sum(line.endswith("True") for line in search) == 1
    assert (folder / "d" / "test_results.txt").exists()


@pytest.mark.slow
def test_goes_on_where_it_stopped(folder):
    """The second half of a run, done by a second command, ends with the same evaluation.

    Another vocabulary of equal size isn't taken, neither to go on with nor to evaluate.
    """
    tokens = (folder / "vocab.txt").read_text().splitlines()
    (folder / "swapped.txt").write_text("\n".join([*tokens[:5], *tokens[:4:-1]]))
    do = ("--do_train", "--do_eval", *FILES, "--save_checkpoints_steps=10")
    half = command(folder, "half", *do, "--num_train_steps=20", "--lr_schedule=constant")
    rest = command(folder, "half", *do, "--num_train_steps=40", "--lr_schedule=constant")
    whole = command(folder, "whole", *do, "--num_train_steps=40", "--lr_schedule=constant")
    # Without warm-up, whose length would depend on the number of steps.
    lines = [(*line, "--warmup_proportion=0") for line in (half, rest, whole)]
    swapped = f"--vocab_file={folder}/swapped.txt"
    lines += [(*rest, swapped), command(folder, "whole", "--do_eval", *FILES, swapped)]
    lines += [
        command(folder, "n", *do, swapped, f"--init_checkpoint={folder}/whole/model.ckpt-{step}")
        for step in (30, 40)
    ]
    *ended, goes_on, evaluates, one, other = messages("run_ner.py", *(line[1:] for line in lines))
    assert ended == ["", "", ""]
    for said, where in ((goes_on, "half"), (evaluates, "whole"), (one, "whole"), (other, "whole")):
        assert f"{folder}/{where}/model.ckpt-" in said
        assert f"belongs to another vocabulary than {folder}/swapped.txt" in said
    resumed = results(folder / "half" / "eval_results.txt")
    assert resumed == results(folder / "whole" / "eval_results.txt")
    assert resumed["global_step"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conll2003/eng.testb", "chinese/weibo_ner/test.all.bmes"])
def test_real_files_word_by_word(shared_data, folder, name, tmp_path):
    """Words and gold entities in the predictions are those of the file."""
    vocabulary = "bert-chinese" if "weibo" in name else "bert-cased-en"
    vocab = shared_data / "vocab" / vocabulary / "vocab.txt"
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = len(vocab.read_text(encoding="utf-8").splitlines())
    (tmp_path / "config.json").write_text(json.dumps(config))
    succeed(
        "run_ner.py",
        *("--do_train", "--do_predict", "--num_train_steps=2", "--max_seq_length=32"),
        f"--train_file={shared_data}/{name}",
        f"--test_file={shared_data}/{name}",
        f"--vocab_file={vocab}",
        "--do_lower_case=False",
        f"--bert_config_file={tmp_path}/config.json",
        f"--output_dir={tmp_path}/out",
    )
    text = (shared_data / name).read_text(encoding="utf-8")
    lines = [line.split() for line in text.split("\n") if not line.startswith("-DOCSTART-")]
    words = [line[0] for line in lines if line]
    rows = (tmp_path / "out" / "predictions.txt").read_text(encoding="utf-8").split("\n")
    rows = [row.split(" ") for row in rows if row]
    assert [row[0] for row in rows] == words
    assert all(len(row) == 3 for row in rows)


TEXT_CLIENT = """
def answer(loaded, asked):
    found = loaded.signatures["serving_default"](text=tf.constant(asked))
    return {name: [[x.decode() if isinstance(x, bytes) else x for x in row] for row in
                   found[name].numpy().tolist()]
            for name in ("words", "tags", "entity_texts", "entity_starts", "entity_ends")}
"""


@pytest.mark.slow
def test_characters_of_files_with_a_sentence_per_line(folder, tmp_path):
    draw = np.random.default_rng(0)
    places, people, other = ["北京", "上海", "天安门"], ["小明", "老王"], ["我", "去", "了", "看见"]
    letters = sorted({*"".join(places + people + other)})
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": len(vocab)}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def sentence():
        words = [str(word) for word in draw.choice(places + people + other, draw.integers(2, 7))]
        tags = ["B-LOC" if w in places else "B-PER" if w in people else "O" for w in words]
        return f"{' '.join(words)}\t{' '.join(tags)}"

    for name, count in (("train.txt", 300), ("dev.txt", 30)):
        (tmp_path / name).write_text("".join(f"{sentence()}\n" for _ in range(count)))
    train = ("--train_file=train.txt", "--do_train", "--do_export", "--split_characters")
    log = succeed(
        *command(tmp_path, "a", *train, "--num_train_epochs=10", "--max_train_examples=240")
    )
    assert "train: the first 240 of 300 examples (--max_train_examples)" in log
    assert "sentences are tagged in several windows" in log or "none of 240 sentences" in log
    # What the model knows needs no flag.
    evaluate = ("--do_eval", "--do_predict", "--dev_file=dev.txt", "--test_file=dev.txt")
    succeed(*command(tmp_path, "a", *evaluate))
    assert results(tmp_path / "a/eval_results.txt")["eval_f1"] > 0.95
    blocks = (tmp_path / "a/predictions.txt").read_text().strip("\n").split("\n\n")
    rows = [[line.split() for line in block.split("\n")] for block in blocks]
    texts = [line.split("\t")[0] for line in (tmp_path / "dev.txt").read_text().splitlines()]
    assert ["".join(row[0] for row in block) for block in rows] == [
        text.replace(" ", "") for text in texts
    ]
    lines = (tmp_path / "a/entities.jsonl").read_text().splitlines()
    entities = [json.loads(line) for line in lines]
    assert [row["text"] for row in entities] == [text.replace(" ", "") for text in texts]

    # Wherever the text has blanks.
    answers = served(TEXT_CLIENT, tmp_path / "a/export/1", texts, tmp_path)
    for number, text in enumerate(texts):
        words, tags = zip(*((row[0], row[2]) for row in rows[number]), strict=True)
        assert [word for word in answers["words"][number] if word] == list(words)
        assert answers["tags"][number][: len(tags)] == list(tags)
        found = [name for name in answers["entity_texts"][number] if name]
        edges = zip(answers["entity_starts"][number], answers["entity_ends"][number], strict=True)
        assert [text[start:end] for start, end in edges if start >= 0] == found
        assert found == [entity["text"] for entity in entities[number]["entities"]]

    content = json.loads((tmp_path / "a/labels.json").read_text())
    assert content.pop("split_characters")
    (tmp_path / "a/labels.json").write_text(json.dumps(content))
    message = fail(*command(tmp_path, "a", *evaluate, "--split_characters"))
    assert "the model was trained to tag words" in message
