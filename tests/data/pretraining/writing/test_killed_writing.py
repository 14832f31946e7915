"""Making records, killed at any moment and started again, ends as if it had never been killed."""

import random
import signal
import time

import pytest

from tests.data.pretraining.instances.test_generate import TOKENS, corpus
from tests.data.pretraining.writing.test_writing import everything, text_of
from tests.scripts import Script


def start(folder, out):
    return Script(
        "-m",
        "data.create_pretraining_data",
        f"--input_file={folder}/*.txt",
        f"--output_file={out}/made.tfrecord",
        f"--vocab_file={folder}/vocab",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
        "--dupe_factor=5",
        "--num_shards=6",
        "--num_workers=2",
        "--compression=gzip",
        "--drop_duplicates",
    )


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.hours)])
def test_killed(tmp_path, times):
    text = tmp_path / "text"
    text.mkdir()
    (text / "vocab").write_text("\n".join(TOKENS) + "\n")
    for number in range(3):
        (text / f"{number}.txt").write_text(text_of(corpus(700, seed=number)))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    before = time.monotonic()
    ended = start(text, tmp_path / "whole").wait()
    whole = time.monotonic() - before
    assert ended.returncode == 0, ended.stderr
    draw, killed = random.Random(0), tmp_path / "killed"
    deaths = 0
    while deaths < times:
        process = start(text, killed)
        time.sleep(draw.uniform(0.1, whole))
        process.send_signal(signal.SIGKILL)
        code = process.wait().returncode
        # A shard that is there is whole, whenever the process died.
        for path in killed.glob("*.tfrecord"):
            assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
        if code == -signal.SIGKILL:
            deaths += 1
        else:
            assert code == 0
            for path in killed.iterdir():
                path.unlink()
    ended = start(text, killed).wait()
    assert ended.returncode == 0, ended.stderr
    assert everything(killed) == everything(tmp_path / "whole")
    assert len(list(killed.glob("*.tfrecord"))) == 6
    assert not (killed / "made.tfrecord.parts").exists()
