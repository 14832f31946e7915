"""Of several workers that answer SQuAD's questions together the chief writes the files."""

import json
import signal

import pytest

from tests.modeling.training.test_workers import free_ports
from tests.scripts import Script


@pytest.mark.slow
def test_the_chief_alone_writes_answers(golden, shared_data, tmp_path):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    questions = json.loads((golden / "squad" / "synth_v1.json").read_text())
    questions["data"] = questions["data"][:1]
    questions["data"][0]["paragraphs"] = questions["data"][0]["paragraphs"][:2]
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    workers = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        workers.append(
            Script(
                "run_squad.py",
                "--do_predict",
                f"--predict_file={tmp_path}/questions.json",
                f"--vocab_file={shared_data}/vocab/bert-uncased-en/vocab.txt",
                f"--bert_config_file={golden}/tiny2/bert_config.json",
                f"--init_checkpoint={golden}/tiny2/model.ckpt",
                # A folder for each, to see what each writes.
                f"--output_dir={tmp_path}/{index}",
                *("--max_seq_length=64", "--doc_stride=32", "--max_query_length=24"),
                environment={"TF_CONFIG": json.dumps(config)},
            )
        )
    try:
        for worker in workers:
            ended = worker.wait(120)
            assert ended.returncode == 0, ended.stderr[-3000:]
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
    chief, other = (
        {path.name for path in (tmp_path / str(index)).glob("*predictions.json")}
        for index in range(2)
    )
    assert chief == {"predictions.json", "nbest_predictions.json"}
    assert not other
