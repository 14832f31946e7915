"""Many clients at once, real inputs mixed with hostile ones, against the stand-in of TF Serving.

    python -m tests.benchmarks.serving_load --export sentiment=exports/sentiment \
        --export squad=exports/squad --minutes=10 --clients=16

The server runs in a process of its own; the clients ask over REST (rows and columns) and gRPC.
Inputs are SST-2's sentences, and SQuAD's questions with their contexts where a model asks for
`question` and `context`. Answers are compared with those that the same SavedModel gave before the
run in this process, to the same batch: strings and whole numbers exactly, others within 1e-4.

    kind               what is sent                                      what has to come
    real               1, 4 or 16 real rows                              the right answer
    empty text         "" as one of the inputs                           the right answer
    not UTF-8          wrong bytes, in base64 or by gRPC                 the right answer
    1 MB of words      real text up to 1 MB as one of the inputs         the right answer; a refusal
                                                                         of too many windows
    1 MB word          1 MB of letters without a space                   the right answer
    huge batch         --huge_rows rows of a few words                   the right answer
    raw bytes          bytes in a JSON string that aren't UTF-8          a refusal
    malformed JSON     cut off, empty, no object, no inputs              a refusal
    wrong type         a number, null or an object for a text            a refusal
    wrong name         an input under another name                       a refusal that names it
    missing field      one input too few                                 a refusal that names it
    wrong signature    one that isn't there                              a refusal that names it
    wrong model        a model or version that isn't there               a refusal that names it
    uneven             columns or rows that don't fit together           a refusal
    wrong rank         a text in a list too many                         a refusal
    wrong ids          `tokenized` with an id beyond the vocabulary      a refusal
    wrong example      `examples` with bytes that are no tf.Example      a refusal
    too large          more than --most_megabytes                        a refusal that says so

A refusal is 4xx, or gRPC's word for one, with a message. Anything else is wrong, as is a refusal
where an answer is due. Kinds of large requests are rare, and two at a time at most. Exits with an
error if anything was wrong, the server died or its memory grew.
"""

from modeling import quiet  # noqa: F401  isort: skip

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

from data.files.tables import read_table
from data.tasks.questions.squad import read_squad
from tests.modeling.serving.client import GrpcClient, RestClient, ServingError
from tests.modeling.serving.stand_in import started

FLAGS = flags.FLAGS
SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
DATA = pathlib.Path(os.environ.get("BERT_SHARED_DIR", SHARED)) / "data"
DEFAULT = "serving_default"
REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
REFUSALS |= {"RESOURCE_EXHAUSTED"}
TOLERANCE = 1e-4
REAL = "real"
LARGE = ("1 MB of words", "1 MB word", "huge batch", "too large")
# Shares of all requests; the other kinds divide what is left.
REAL_SHARE, LARGE_SHARE = 0.8, 0.01
ODD = b"good \xff\xfe film \xc3 \xed\xa0\x80\xf4\x90\x80\x80 bad"


@dataclasses.dataclass
class Case:
    """A request that is sent again and again.

    Attributes:
        kind: See the table above.
        post: Sends it.
        read: From what comes to outputs by name.
        expected: Outputs; None if it has to be refused.
        says: Pattern of a refusal's message.
    """

    kind: str
    post: Callable[[], object]
    read: Callable[[object], dict[str, np.ndarray]]
    expected: dict[str, np.ndarray] | None
    says: str = "."


class Cases:
    """All requests for one export.

    Args:
        name: Of the model.
        folder: Of its versions.
        addresses: Of REST and gRPC.
        draw: Random; gives rows for the model's inputs.
    """

    def __init__(self, name: str, folder: str, addresses: dict[str, str], draw: random.Random):
        newest = max(int(path.name) for path in pathlib.Path(folder).glob("[0-9]*"))
        self.signatures = tf.saved_model.load(f"{folder}/{newest}").signatures
        self.inputs = self.signatures[DEFAULT].structured_input_signature[1]
        self.name, self.addresses, self.draw = name, addresses, draw
        self.rest = [RestClient(addresses["rest"], name, rows=rows) for rows in (False, True)]
        self.grpc = GrpcClient(addresses["grpc"], name)
        self.sentences = [row.fields["sentence"].strip() for row in read_table(FLAGS.sst2)]
        self.questions = read_squad(FLAGS.squad, training=False)

    def row(self, words: int | None = None) -> dict[str, object]:
        """Real values of the inputs, or their first words."""
        question = self.draw.choice(self.questions)

        def value(name: str, rank: int):
            if rank > 1:
                return [value(name, rank - 1) for _ in range(2)]
            text = getattr(question, name, "") or self.draw.choice(self.sentences)
            return " ".join(text.split(" ")[:words])

        return {name: value(name, spec.shape.rank) for name, spec in self.inputs.items()}

    def replaced(self, text) -> Iterator[dict]:
        """Real rows with one input replaced."""
        for name, spec in self.inputs.items():
            yield self.row() | {name: [text, text] if spec.shape.rank > 1 else text}

    def answered(self, kind: str, rows: list[dict]) -> Iterator[Case]:
        """What has to be answered: through all formats."""
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        tensors = {name: tf.constant(column) for name, column in columns.items()}
        try:
            outputs = self.signatures[DEFAULT](**tensors)
        except tf.errors.InvalidArgumentError as error:
            if kind not in LARGE or "--export_max_windows" not in str(error):
                raise
            yield from self.refused(kind, "windows", columns)
            return
        expected = {name: value.numpy() for name, value in outputs.items()}
        for client in self.rest:
            yield self._case(kind, client, client.body(DEFAULT, columns), expected)
        yield self._case(kind, self.grpc, self.grpc.request(DEFAULT, columns), expected)

    def refused(self, kind: str, says: str, columns: dict, signature: str = DEFAULT):
        """What has to be refused: through REST in columns and gRPC."""
        yield from self.bodies(kind, says, self.rest[0].body(signature, columns))
        yield self._case(kind, self.grpc, self.grpc.request(signature, columns), says=says)

    def bodies(self, kind: str, says: str, *bodies: bytes) -> Iterator[Case]:
        """What only REST can be sent."""
        for body in bodies:
            yield self._case(kind, self.rest[0], body, says=says)

    def _case(self, kind: str, client, asked, expected=None, says: str = ".") -> Case:
        read = client.read
        if client is not self.grpc:
            read = functools.partial(client.read, DEFAULT)
        return Case(kind, functools.partial(client.post, asked), read, expected, says)

    def __iter__(self) -> Iterator[Case]:
        yield from self._good()
        yield from self._bad()
        yield from self._bad_in_the_graph()

    def _good(self) -> Iterator[Case]:
        for size, number in ((1, FLAGS.cases), (4, FLAGS.cases // 4), (16, FLAGS.cases // 8)):
            for _ in range(number):
                yield from self.answered(REAL, [self.row() for _ in range(size)])
        words = " ".join(self.sentences)
        words = (words * (FLAGS.text_bytes // len(words) + 1))[: FLAGS.text_bytes]
        for kind, text in (
            ("empty text", ""),
            ("not UTF-8", ODD),
            ("1 MB of words", words),
            ("1 MB word", "x" * FLAGS.text_bytes),
        ):
            for row in self.replaced(text):
                yield from self.answered(kind, [row])
        yield from self.answered("huge batch", [self.row(5) for _ in range(FLAGS.huge_rows)])

    def _bad(self) -> Iterator[Case]:
        row = self.row()
        first = next(iter(row))
        column = {name: [value] for name, value in row.items()}
        body = self.rest[0].body(DEFAULT, column)
        yield from self.bodies("raw bytes", "JSON Parse", body.replace(b'["', b'["\xff', 1))
        yield from self.bodies("malformed JSON", "JSON Parse", b"", body[:-2], b'{"inputs": [,]}')
        yield from self.bodies("malformed JSON", "object", b"[1]")
        yield from self.bodies("malformed JSON", "inputs", b'{"signature_name": "serving_default"}')
        for value in (7, None, True, {"text": "a"}):
            wrong = {"instances": [row | {first: value}]}
            yield from self.bodies("wrong type", "(?i)value|keys", json.dumps(wrong).encode())
        for value in (7, 1.5, True):
            request = self.grpc.request(DEFAULT, column | {first: [value]})
            yield self._case("wrong type", self.grpc, request, says=f"{first}.*string")
        renamed = {f"{name}s": value for name, value in column.items()}
        yield from self.refused("wrong name", "|".join(column), renamed)
        for name in column:
            fewer = {other: value for other, value in column.items() if other != name}
            yield from self.refused("missing field", name, fewer)
        yield from self.refused("wrong signature", "nothing_such", column, "nothing_such")
        for name, version in (("nothing_such", None), (self.name, 999999)):
            says = f"{name}.*{version or ''}"
            rest = RestClient(self.addresses["rest"], name, version)
            yield self._case("wrong model", rest, body, says=says)
            request = self.grpc.request(DEFAULT, column)
            request.model_spec.name = name
            if version:
                request.model_spec.version.value = version
            yield self._case("wrong model", self.grpc, request, says=says)
        uneven = [row, row | {first: [row[first]]}]
        asked = json.dumps({"instances": uneven}).encode()
        yield from self.bodies("uneven", "element: 1", asked)
        many = {name: ["a" * (FLAGS.most_megabytes << 20)] for name in column}
        yield from self.refused("too large", "(?i)limit|larger|exceed", many)

    def _bad_in_the_graph(self) -> Iterator[Case]:
        """What no server sees: it falls to the export."""
        row = self.row()
        if len(row) > 1:
            columns = {n: [value] * (2 + k) for k, (n, value) in enumerate(row.items())}
            yield from self.refused("uneven", "rows", columns)
        deeper = {name: [[value]] for name, value in row.items()}
        yield from self.refused("wrong rank", ".", deeper)
        if "tokenized" in self.signatures:
            specs = self.signatures["tokenized"].structured_input_signature[1]
            ones = {n: np.ones([2] * s.shape.rank, np.int32) for n, s in specs.items()}
            ids = ones | {"input_ids": ones["input_ids"] << 30}
            yield from self.refused("wrong ids", str(1 << 30), ids, "tokenized")
            ids = ones | {"segment_ids": ones["segment_ids"] * -5}
            yield from self.refused("wrong ids", "segment_ids.*-5", ids, "tokenized")
        if "examples" in self.signatures:
            (name,) = self.signatures["examples"].structured_input_signature[1]
            broken = {name: [b"\xff\x01"]}
            yield from self.refused("wrong example", "(?i)example", broken, "examples")


# ---- The run ----


class Run:
    """Clients in threads, and what happened to them.

    Args:
        cases: Requests.
        process: The server's number.
    """

    def __init__(self, cases: list[Case], process: int):
        self.by_kind: dict[str, list[Case]] = collections.defaultdict(list)
        for case in cases:
            self.by_kind[case.kind].append(case)
        self.process = process
        # Kind, seconds and "good", "refused" or "wrong".
        self.records: list[tuple[str, float, str]] = []
        self.complaints: list[str] = []
        self.memory: list[float] = []
        self._large = threading.Semaphore(2)
        small = [kind for kind in self.by_kind if kind != REAL and kind not in LARGE]
        large = [kind for kind in self.by_kind if kind in LARGE]
        rest = 1 - REAL_SHARE - LARGE_SHARE
        self._shares = {REAL: REAL_SHARE} | dict.fromkeys(large, LARGE_SHARE / len(large))
        self._shares |= dict.fromkeys(small, rest / len(small))

    def __call__(self, clients: int, seconds: float, seed: int) -> None:
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._client, args=(random.Random(f"{seed} {n}"), end))
            for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if megabytes := resident_megabytes(self.process):
                self.memory.append(megabytes)
            time.sleep(0.25)

    def _client(self, draw: random.Random, end: float) -> None:
        while time.monotonic() < end and resident_megabytes(self.process):
            (kind,) = draw.choices(list(self._shares), list(self._shares.values()))
            case = draw.choice(self.by_kind[kind])
            with self._large if kind in LARGE else contextlib.nullcontext():
                self._ask(case)

    def _ask(self, case: Case) -> None:
        start = time.perf_counter()
        answer = error = None
        try:
            answer = case.post()
        except Exception as raised:  # a lost connection too
            error = raised
        seconds = time.perf_counter() - start
        complaint = judge(case, answer, error)
        outcome = "wrong" if complaint else "good" if case.expected else "refused"
        self.records.append((case.kind, seconds, outcome))
        if complaint:
            self.complaints.append(f"{case.kind}: {complaint}")

    def table(self) -> str:
        lines = ["| kind | requests | good | refused | wrong | p50 ms | p95 ms | p99 ms |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
        for kind in [*self.by_kind, "all"]:
            records = [record for record in self.records if kind in (record[0], "all")]
            counts = collections.Counter(outcome for _, _, outcome in records)
            cells = [len(records), *(counts[name] for name in ("good", "refused", "wrong"))]
            if records:
                times = [seconds * 1000 for _, seconds, _ in records]
                cells += [f"{value:.0f}" for value in np.percentile(times, (50, 95, 99))]
            lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
        return "\n".join(lines)


def judge(case: Case, answer, error: Exception | None) -> str:
    """What is wrong with it; empty if nothing is."""
    if case.expected is None:
        if error is None:
            return f"answered where a refusal is due: {str(answer)[:200]}"
        if not isinstance(error, ServingError):
            return f"{type(error).__name__}: {error}"
        given = error.code in REFUSALS or (isinstance(error.code, int) and 400 <= error.code < 500)
        if not given or not re.search(case.says, error.message, re.DOTALL):
            return f"refused, but not because of /{case.says}/: {str(error)[:300]}"
        return ""
    if error is not None:
        return f"{type(error).__name__}: {str(error)[:300]}"
    try:
        outputs = case.read(answer)
    except Exception as raised:
        return f"unreadable: {type(raised).__name__}: {raised}"
    if outputs.keys() != case.expected.keys():
        return f"outputs {sorted(outputs)} instead of {sorted(case.expected)}"
    for name, expected in case.expected.items():
        got = outputs[name]
        close = got.shape == expected.shape and got.dtype == expected.dtype
        if close and expected.dtype.kind == "f":
            bound = TOLERANCE * np.maximum(1, np.abs(expected))
            close = bool(np.all(np.abs(got - expected) <= bound))
        elif close:
            close = bool(np.array_equal(got, expected))
        if not close:
            return f"{name}: {str(got)[:200]} instead of {str(expected)[:200]}"
    return ""


def resident_megabytes(process: int) -> float:
    """0 if it runs no more."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            found = re.search(r"^VmRSS:\s*(\d+) kB$", file.read(), re.MULTILINE)
    except FileNotFoundError:
        return 0
    return int(found[1]) / 1024 if found else 0


def main(_) -> None:
    # Of all on this machine the kernel shall end these two first, should memory run out.
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    draw = random.Random(FLAGS.seed)
    exports = dict(export.split("=", 1) for export in FLAGS.export)
    if not exports:
        raise SystemExit("Give at least one --export NAME=DIR")
    with started(exports, FLAGS.most_megabytes << 20) as (server, addresses):
        made = [Cases(*one, addresses, draw) for one in exports.items()]
        cases = [case for one in made for case in one]
        print(f"{len(cases)} different requests, {FLAGS.clients} clients", flush=True)
        run = Run(cases, server.pid)
        start = time.monotonic()
        run(FLAGS.clients, FLAGS.minutes * 60, FLAGS.seed)
        seconds = time.monotonic() - start
        faults = [] if server.poll() is None else [f"The server died: {server.returncode}"]
        for one in made:
            one.grpc.close()
    print(run.table())
    print(f"{len(run.records) / seconds:.1f} requests/s in {seconds:.0f} s")
    # What comes after the first fifth, which warms up.
    memory = run.memory[len(run.memory) // 5 :] or [1]
    quarter = max(1, len(memory) // 4)
    first, last = statistics.median(memory[:quarter]), statistics.median(memory[-quarter:])
    growth = last / first
    print(f"RSS {first:.0f} MB in the first quarter, {last:.0f} MB in the last: {growth:.3f}")
    if growth > FLAGS.max_growth:
        faults.append(f"Memory grew by more than {FLAGS.max_growth}")
    if run.complaints:
        faults += [f"{len(run.complaints)} wrong:", *run.complaints[:20]]
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    flags.DEFINE_multi_string("export", [], "NAME=DIR of a model's versions.")
    flags.DEFINE_float("minutes", 10, "How long.")
    flags.DEFINE_integer("clients", 16, "How many at once.")
    flags.DEFINE_string("sst2", str(DATA / "glue/SST-2/dev.tsv"), "Sentences.")
    flags.DEFINE_string("squad", str(DATA / "squad/dev-v1.1.json"), "Questions.")
    flags.DEFINE_integer("cases", 40, "Different real requests of one row, for each model.")
    flags.DEFINE_integer("huge_rows", 5000, "Rows of a huge batch.")
    flags.DEFINE_integer("text_bytes", 1 << 20, "Bytes of the long texts.")
    flags.DEFINE_integer("most_megabytes", 16, "What the server takes in one request.")
    flags.DEFINE_float("max_growth", 1.1, "How much memory may grow.")
    flags.DEFINE_integer("seed", 0, "Of the choice of requests.")
    app.run(main)
