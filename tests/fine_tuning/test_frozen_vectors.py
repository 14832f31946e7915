"""run_ner.py --feature_based keeps the vectors of each of its files, whatever their names."""

import pytest

from tests.fine_tuning.tiny_tasks import results, tagger, write_model, write_tags
from tests.scripts import succeed


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
