"""The benchmark of serving, as far as it goes without its peers: requests, turns, table, pipes."""

import sys

import numpy as np
import pytest

from data.tokenization import Tokenizer, build_inputs
from tests.benchmarks import serving_clients, serving_speed
from tests.benchmarks.peers import environment, worker
from tests.benchmarks.peers.requests import mixed_batches, texts_of_length
from tests.benchmarks.serving_speed import Result, interleaved

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "##ly", "film"]


def test_texts_have_exactly_the_tokens_asked_for():
    tokenizer = Tokenizer.from_vocab(TOKENS)
    words = ["good", "badly", "film", "badlyly", "bad", "goodly"] * 20
    pieces = tokenizer.tokenize(words).row_lengths().numpy().tolist()
    assert sorted(set(pieces)) == [1, 2, 3]
    for length in (4, 7, 12):
        texts = texts_of_length(words, pieces, length, 5)
        assert len(texts) == 5
        inputs = build_inputs(tokenizer, texts, pad_to="longest")
        assert inputs["input_mask"].numpy().sum(1).tolist() == [length] * 5


def test_too_little_text_is_an_error():
    with pytest.raises(ValueError, match="3 words make only 1 texts of 4 tokens"):
        texts_of_length(["good", "bad", "film"], [1, 1, 1], 4, 2)


def test_batches_are_drawn_without_repetition():
    texts = [str(number) for number in range(50)]
    batches = mixed_batches(texts, 8, 4, seed=1)
    assert [len(batch) for batch in batches] == [8] * 4
    drawn = [text for batch in batches for text in batch]
    assert len(set(drawn)) == 32 and set(drawn) <= set(texts) and drawn != texts[:32]
    assert batches == mixed_batches(texts, 8, 4, seed=1) != mixed_batches(texts, 8, 4, seed=2)


def test_engines_take_turns():
    called = []

    def engine(name):
        def call():
            called.append(name)
            return float(len(called))

        return call

    found = interleaved({name: engine(name) for name in "abc"}, rounds=4, pause=0)
    assert "".join(called) == "abcbcacababc"
    assert found == {"a": [1, 6, 8, 10], "b": [2, 4, 9, 11], "c": [3, 5, 7, 12]}


def results():
    seconds = {
        "ours float32 serving_default": [0.02, 0.01, 0.04],
        "ours float32 tokenized": [0.01, 0.01, 0.01],
        "ours bfloat16 serving_default": [0.01, 0.01, 0.01],
        "ours bfloat16 tokenized": [0.01, 0.01, 0.01],
        "onnx_runtime float32": [0.03, 0.02, 0.04],
        "onnx_runtime int8": [0.02, 0.01, 0.02],
        "pytorch float32": [0.06, 0.05, 0.04],
        "pytorch bfloat16": [0.03, 0.03, 0.03],
    }
    one = Result("tiny", "1 × 16 tokens", 1, seconds, {})
    many = Result("tiny", "32 × SST-2", 32, seconds, {})
    return [one, many]


def test_ratios_are_taken_round_by_round():
    result = results()[0]
    ours = "ours float32 serving_default"
    assert result.ratio(ours, "onnx_runtime float32") == pytest.approx((1.5, 1.0, 2.0))
    # 3, 5 and 1; the ratio of the medians is 2.5.
    assert result.ratio(ours, "pytorch float32") == pytest.approx((3.0, 1.0, 5.0))


def test_the_table_has_latency_of_one_and_throughput_of_many():
    lines = serving_speed.table(results(), "float32").split("\n")
    assert lines[0] == (
        "| model | request | ours, from text | ours, from ids "
        "| ONNX Runtime | from text | from ids | PyTorch | from text | from ids |"
    )
    assert lines[2] == (
        "| tiny | 1 × 16 tokens | 20.0 ms | 10.0 ms | 30.0 ms | 1.50 (1.00–2.00) "
        "| 3.00 (2.00–4.00) | 50.0 ms | 3.00 (1.00–5.00) | 5.00 (4.00–6.00) |"
    )
    assert lines[3].startswith("| tiny | 32 × SST-2 | 1600/s | 3200/s | 1067/s | 1.50 ")
    lines = serving_speed.table(results(), "bfloat16").split("\n")
    assert (
        "| ONNX Runtime | from text | from ids | ONNX Runtime, int8 | from text | from ids "
        "| PyTorch |"
    ) in lines[0]
    assert lines[3].startswith("| tiny | 32 × SST-2 | 3200/s | 3200/s | 1067/s | 3.00 ")
    assert lines[3].endswith(
        "| 1600/s | 2.00 (1.00–2.00) | 2.00 (1.00–2.00) "
        "| 1067/s | 3.00 (3.00–3.00) | 3.00 (3.00–3.00) |"
    )


def test_accuracy_is_of_all_batches():
    class Engine:
        def ask(self, do, engine, case):
            assert (do, case) == ("answers", "dev")
            return [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4] if engine == "some" else [0.4, 0.6]]]

    engines = {name: (Engine(), name) for name in ("some", "other")}
    found = serving_speed.accuracies(engines, ["0", "1", "1"])
    assert found == "Accuracy on SST-2's dev set: some 66.67 %, other 100.00 %"


def test_engines_that_compute_something_else_are_found_out():
    ours = [[[0.9, 0.1]], [[0.2, 0.8]]]
    near = [[[0.90005, 0.09995]], [[0.2, 0.8]]]
    name = "ours float32 serving_default"
    found = serving_speed.check_answers({name: ours, "onnx_runtime float32": near})
    assert found["onnx_runtime float32"] == pytest.approx(5e-5)
    far = [[[0.9, 0.1]], [[0.201, 0.799]]]
    assert serving_speed.check_answers({name: ours, "pytorch bfloat16": far})
    with pytest.raises(ValueError, match=r"pytorch float32 differs by 1\.0e-03"):
        serving_speed.check_answers({name: ours, "pytorch float32": far})
    with pytest.raises(ValueError, match="nearly the same"):
        serving_speed.check_answers({name: [[[0.5, 0.5]], [[0.501, 0.499]]]})
    with pytest.raises(ValueError, match="differs by nan"):
        nothing = [[[float("nan"), 0.1]], [[0.2, 0.8]]]
        serving_speed.check_answers({name: ours, "pytorch float32": nothing})


def test_cases_come_back_from_their_files(tmp_path):
    texts = [["gut", "schön"], ["x"]]
    batches = [
        {name: np.arange(rows * 3, dtype=np.int32).reshape(rows, 3) for name in worker.ID_NAMES}
        for rows in (2, 1)
    ]
    worker.write_texts(tmp_path, "some", texts)
    worker.write_batches(tmp_path, "some", batches)
    assert worker.read_texts(tmp_path, "some") == texts
    found = worker.read_batches(tmp_path, "some")
    assert len(found) == 2
    for expected, got in zip(batches, found, strict=True):
        for name in worker.ID_NAMES:
            assert got[name].dtype == np.int64
            np.testing.assert_array_equal(got[name], expected[name])


WORKER = """
import sys
import numpy as np
from tests.benchmarks.peers.worker import serve

class Engine:
    prepared = 0
    def prepare(self, case, batches):
        self.prepared += 1
        print("noise on standard output", flush=True)
        return [batch["input_ids"] for batch in batches]
    def call(self, ids):
        return ids * 0.5 + self.prepared

def start():
    if sys.argv[2] == "broken":
        raise ValueError("no such weights")
    return "a worker", {"half": Engine()}

serve(start, sys.argv[1])
"""


def begin(folder, kind: str) -> environment.Process:
    return environment.Process("worker", [sys.executable, "-c", WORKER, str(folder), kind], 1)


def test_a_worker_answers_over_pipes(tmp_path):
    batches = [{name: np.full((1, 2), value) for name in worker.ID_NAMES} for value in (2, 4)]
    worker.write_batches(tmp_path, "some", batches)
    with begin(tmp_path, "sound") as process:
        assert process.ask(do="about") == "a worker"
        which = {"engine": "half", "case": "some"}
        # The 1 is how often it prepared.
        assert process.ask(do="answers", **which) == [[[2.0, 2.0]], [[3.0, 3.0]]]
        seconds = process.ask(do="time", passes=3, **which)
        assert len(seconds) == 3 and all(each > 0 for each in seconds)
        assert process.ask(do="answers", **which) == [[[2.0, 2.0]], [[3.0, 3.0]]]
        seen = process.ask(do="clients", clients=3, seconds=0.1, **which)
        assert len(seen["latencies"]) >= 3 and seen["seconds"] >= 0.1
        # Three at once: all latencies together are about three times the whole.
        assert sum(seen["latencies"]) <= 3 * seen["seconds"]


def test_clients_are_compared_with_the_faster_arrangement():
    def seen(*numbers: int) -> list[dict]:
        return [{"seconds": 2.0, "latencies": [0.01] * number} for number in numbers]

    found = serving_clients.rows(
        {
            "ours float32": seen(60, 80, 100),
            "ONNX Runtime float32, 1 a request": seen(40, 40, 50),
            "ONNX Runtime float32, 2 a request": seen(20, 90, 20),
            "ONNX Runtime int8, 1 a request": seen(80, 80, 80),
            "ONNX Runtime int8, 2 a request": seen(160, 160, 160),
        },
        4,
    )
    times = ["10.0 ms", "10.0 ms"]
    assert found == [
        ["4", "ours float32", "40", *times, "2.00 (1.50–2.00)", "0.50 (0.38–0.62)"],
        ["4", "ONNX Runtime float32, 1 a request", "20", *times, "", ""],
        ["4", "ONNX Runtime int8, 2 a request", "80", *times, "", ""],
    ]


def test_a_worker_says_what_went_wrong(tmp_path):
    with begin(tmp_path, "broken") as process:  # noqa: SIM117
        with pytest.raises(RuntimeError, match=r"(?s)worker failed.*ValueError: no such weights"):
            process.ask(do="about")
    with begin(tmp_path, "sound") as process:  # noqa: SIM117
        with pytest.raises(RuntimeError, match=r"(?s)worker failed.*KeyError: 'other'"):
            process.ask(do="answers", engine="other", case="some")


def test_timing_goes_over_every_batch(monkeypatch):
    clock = iter([0.0, 6.0, 10.0, 13.0])
    monkeypatch.setattr(worker.time, "perf_counter", lambda: next(clock))
    called = []
    assert worker.timed(called.append, ["a", "b", "c"], 2) == [2.0, 1.0]
    assert called == ["a", "b", "c"] * 2
