"""The Beam pipeline: the same bytes as on this machine. In an environment of its own."""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.data.pretraining.instances.test_generate import TOKENS, corpus
from tests.data.pretraining.writing.test_writing import everything, text_of
from tests.scripts import fail

ROOT = pathlib.Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def beam_python(tmp_path_factory) -> Iterator[str]:
    """A Python with the requirements and Apache Beam; kept in BERT_BEAM_ENVIRONMENT if that is set.

    Beam wants another protobuf than TensorFlow would get by itself.
    """
    kept = os.environ.get("BERT_BEAM_ENVIRONMENT")
    folder = pathlib.Path(kept) if kept else tmp_path_factory.mktemp("beam")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        files = [ROOT / "requirements.txt", ROOT / "data/pretraining/writing/requirements-beam.txt"]
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
        for file in files:
            command += ["-r", file]
        subprocess.run(command, check=True)
        (folder / "ready").touch()
    yield str(python)
    if not kept:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.hours
def test_direct_runner_writes_the_same_bytes(beam_python, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    (text / "vocab").write_text("\n".join(TOKENS) + "\n")
    documents = corpus(1500, seed=1)
    (text / "1.txt").write_text(text_of(documents))
    (text / "2.txt").write_text(text_of(documents[:50] + corpus(900, seed=2)))

    def make(python, out, *more):
        command = [python, "-m", "data.create_pretraining_data", f"--input_file={text}/*.txt"]
        command += [f"--output_file={out}/made.tfrecord", f"--vocab_file={text}/vocab"]
        command += ["--max_seq_length=32", "--max_predictions_per_seq=5", "--dupe_factor=2"]
        command += ["--num_shards=3", "--compression=gzip", "--drop_duplicates", *more]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    for name in ("local", "beam"):
        (tmp_path / name).mkdir()
    options = "--direct_running_mode=multi_processing --direct_num_workers=2"
    runner = ["--runner=DirectRunner", f"--beam_options={options}"]
    done = make(sys.executable, tmp_path / "local")
    assert done.returncode == 0, done.stderr
    done = make(beam_python, tmp_path / "beam", *runner)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2,400 documents" in done.stderr
    assert everything(tmp_path / "beam") == everything(tmp_path / "local")
    assert not (tmp_path / "beam/made.tfrecord.parts").exists()

    # Near copies too, by the signatures that the workers leave.
    for name in ("local_near", "beam_near"):
        (tmp_path / name).mkdir()
    near = "--near_duplicates=0.8", "--boilerplate_documents=3"
    assert make(sys.executable, tmp_path / "local_near", *near).returncode == 0
    done = make(beam_python, tmp_path / "beam_near", *near, *runner)
    assert done.returncode == 0 and "50 documents are copies" in done.stderr
    assert everything(tmp_path / "beam_near") == everything(tmp_path / "local_near")

    # Bad text is told in one paragraph here too, and nothing is left under the final names.
    (text / "1.txt").write_bytes(b"caf\xe9 au lait\n" * 200_000)
    (tmp_path / "bad").mkdir()
    done = make(beam_python, tmp_path / "bad", *runner)
    assert done.returncode == 1 and "1.txt:1" in done.stderr.rpartition("Error:")[2]
    assert not list((tmp_path / "bad").glob("*.tfrecord"))


def test_without_beam_it_says_what_to_install(tmp_path):
    (tmp_path / "vocab").write_text("\n".join(TOKENS) + "\n")
    (tmp_path / "1.txt").write_text(text_of(corpus(5)))
    program = """
import runpy, sys
sys.modules["apache_beam"] = None
runpy.run_module("data.create_pretraining_data", run_name="__main__", alter_sys=True)
"""
    command = ["-c", program, f"--input_file={tmp_path}/1.txt", "--runner=DirectRunner"]
    command += [f"--output_file={tmp_path}/made", f"--vocab_file={tmp_path}/vocab"]
    assert "requirements-beam.txt" in fail(*command)
    assert not (tmp_path / "made").exists()
