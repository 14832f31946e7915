"""run_ner.py --feature_based keeps the vectors of each of its files, whatever their names."""

import pytest

from tests.fine_tuning.tiny_tasks import results, tagger, write_model, write_tags
from tests.scripts import fail, succeed


@pytest.mark.slow
def test_files_of_one_name_in_two_folders(tmp_path):
    write_model(tmp_path)
    write_tags(tmp_path / "a" / "data.txt", 12, 0)
    write_tags(tmp_path / "b" / "data.txt", 4, 1)
    files = ("--train_file=a/data.txt", "--dev_file=b/data.txt")
    succeed(*tagger(tmp_path, "encoder", "--do_train", files[0], "--num_train_steps=1"))
    frozen = ("--feature_based", f"--init_checkpoint={tmp_path}/encoder/model.ckpt-1", "--do_eval")
    train = (*files, *frozen, "--do_train", "--num_train_steps=2")
    log = succeed(*tagger(tmp_path, "out", *train))
    assert log.count("Computing the vectors") == 2
    assert results(tmp_path / "out" / "eval_results.txt")["global_step"] == 2
    assert "Computing the vectors" not in succeed(*tagger(tmp_path, "out", *train))


@pytest.mark.slow
def test_a_tagger_answers_from_the_vectors_of_its_training(tmp_path):
    write_model(tmp_path)
    write_tags(tmp_path / "data.txt", 12, 0)
    files = ("--train_file=data.txt", "--dev_file=data.txt")
    for steps in (1, 2):
        train = ("--do_train", files[0], f"--num_train_steps={steps}")
        succeed(*tagger(tmp_path, f"encoder-{steps}", *train))
    ones = [f"--init_checkpoint={tmp_path}/encoder-{n}/model.ckpt-{n}" for n in (1, 2)]
    train = (*files, "--do_train", "--do_eval", "--num_train_steps=2", "--feature_layers=last")
    succeed(*tagger(tmp_path, "out", *train, "--feature_based", ones[0]))
    before = (tmp_path / "out/eval_results.txt").read_text()
    ask = ("--do_eval", files[1], "--feature_based")
    log = succeed(*tagger(tmp_path, "out", *ask, ones[0]))
    assert "--feature_layers=last" in log
    assert (tmp_path / "out/eval_results.txt").read_text() == before
    succeed(*tagger(tmp_path, "out", *ask, ones[0], "--dtype=bfloat16"))
    for other in ((ones[1],), (ones[0], "--feature_layers=first")):
        error = fail(*tagger(tmp_path, "out", *ask, *other))
        assert "was trained on the vectors of another encoder" in error
    # Without the flag it would be a head on the encoder.
    error = fail(*tagger(tmp_path, "out", "--do_eval", files[1]))
    assert "give --bilstm, --feature_based or --second_bert_config_file as in training" in error
