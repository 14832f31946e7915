"""Weights that lie: bundles, safetensors, and files that name others."""

import json

from tests.attacks import damages as d
from tests.attacks.suite import Case

INDEX, DATA = "model/bert_model.ckpt.index", "model/bert_model.ckpt.data-00000-of-00001"
TENSORS = "hf/model.safetensors"
READERS = ("vectors of safetensors", "to tf1")
WORD = "bert.embeddings.word_embeddings.weight"


def of(name: str, **fields):
    """Changes what the header says of a tensor."""

    def change(header: dict) -> None:
        for tensor in header:
            if tensor.endswith("word_embeddings.weight"):
                header[tensor] |= fields

    return d.header(name, change)


def offsets(name: str, move):
    """Changes where the header says that the tensors lie."""

    def change(header: dict) -> None:
        for number, (tensor, about) in enumerate(sorted(header.items())):
            if tensor != "__metadata__":
                about["data_offsets"] = move(number, *about["data_offsets"])

    return d.header(name, change)


def first(header: dict) -> str:
    return min(name for name in header if name != "__metadata__")


HEADERS = (
    offsets("overlapping", lambda n, begin, end: [0, end - begin]),
    offsets("fractional", lambda n, begin, end: [begin + 0.5, end + 0.5]),
    offsets("negative", lambda n, begin, end: [-8, end - begin - 8]),
    offsets("out of the file", lambda n, begin, end: [begin + 10**9, end + 10**9]),
    offsets("of 2^63", lambda n, begin, end: [2**63, 2**63 + end - begin]),
    offsets("backwards", lambda n, begin, end: [end, begin]),
    offsets("as texts", lambda n, begin, end: [str(begin), str(end)]),
    offsets("of three", lambda n, begin, end: [begin, end, end]),
    offsets("of none", lambda n, begin, end: []),
    offsets("null", lambda n, begin, end: None),
    offsets("shorter", lambda n, begin, end: [begin, end - 4]),
    of("dtype unknown", dtype="F31"),
    of("dtype a number", dtype=5),
    of("dtype of other size", dtype="F64"),
    of("dtype of whole numbers", dtype="I32"),
    of("shape negative", shape=[-23, -16]),
    of("shape fractional", shape=[23.5, 16]),
    of("shape of another product", shape=[23, 17]),
    of("shape transposed", shape=[16, 23]),
    of("shape a text", shape="23"),
    of("shape huge", shape=[2**40, 2**40]),
    d.header("a tensor a list", lambda header: header.update({first(header): []})),
    d.header("a tensor without shape", lambda header: header[first(header)].pop("shape")),
    d.header("no tensors", lambda header: header.clear()),
    d.header("half of the tensors", lambda header: [header.pop(n) for n in sorted(header)[1::2]]),
)
FILES = (
    d.missing,
    d.empty,
    d.folder,
    d.binary,
    d.cut,
    d.longer,
    d.dangling_link,
    d.holding(b"\xff" * 8 + b"{}"),
    d.holding(b"\x02" + b"\0" * 7 + b"[]"),
    d.holding(b"\x05" + b"\0" * 7 + b"{\xff\xff\xff}"),
    d.holding(b"\0" * 8),
    d.holding(b"\x07\0\0"),
    d.holding((10**9).to_bytes(8, "little") + b"{}"),
    d.holding((200_000).to_bytes(8, "little") + b"[" * 200_000),
)
NOT_A_NUMBER, INFINITE = b"\0\0\xc0\x7f", b"\0\0\x80\x7f"


def sharded(name: str, weight_map):
    """An index in place of the file."""

    def damage(path):
        path.rename(path.with_name("part.safetensors"))
        d.write(
            path.with_name("model.safetensors.index.json"),
            json.dumps(weight_map).encode()
            if not isinstance(weight_map, str)
            else weight_map.encode(),
        )

    damage.__name__ = name
    return damage


CASES = [
    *(
        Case(job, "safetensors", spoil={TENSORS: how}, says=("model.safetensors",))
        for job, damages in (("vectors of safetensors", FILES), ("to tf1", (*FILES, *HEADERS)))
        for how in damages
        # Then there is nothing to call by its name.
        if how is not d.missing
    ),
    *(Case(job, "safetensors", spoil={TENSORS: d.missing}, says=("hf",)) for job in READERS),
    *(
        Case(
            job,
            "weights that aren't numbers",
            spoil={TENSORS: d.tensor_data(name, value, only)},
            says=("model.safetensors", said),
        )
        for job in READERS
        for name, value, only, said in (
            ("all NaN", NOT_A_NUMBER, "", ""),
            ("all infinite", INFINITE, "", ""),
            ("words NaN", NOT_A_NUMBER, "word_embeddings", "word_embeddings"),
        )
    ),
    *(
        Case(job, "index of safetensors", spoil={TENSORS: how}, says=("model.safetensors.index",))
        for job in READERS
        for how in (
            sharded("empty", ""),
            sharded("no JSON", "{"),
            sharded("a list", []),
            sharded("no map", {}),
            sharded("map a list", {"weight_map": []}),
            sharded("map of numbers", {"weight_map": {WORD: 5}}),
            sharded("map empty", {"weight_map": {}}),
            sharded("outside", {"weight_map": {WORD: "../hf/part.safetensors"}}),
            sharded("absolute", {"weight_map": {WORD: "/etc/passwd"}}),
            sharded("absent", {"weight_map": {WORD: "no.safetensors"}}),
            sharded("without the tensor", {"weight_map": {"no.such.weight": "part.safetensors"}}),
            sharded("a folder", {"weight_map": {WORD: "."}}),
        )
    ),
    *(
        Case(job, "bundles", spoil={INDEX: how}, says=("bert_model.ckpt|model",))
        for job in ("vectors", "to huggingface")
        for how in (d.missing, d.empty, d.folder, d.binary, d.cut, d.flipped)
    ),
    *(
        Case(job, "bundles", spoil={DATA: how}, says=("bert_model.ckpt",))
        for job in ("vectors", "to huggingface")
        for how in (d.missing, d.empty, d.folder, d.binary, d.cut, d.flipped)
    ),
    *(
        Case(job, "bundles", spoil={DATA: how}, says=("bert_model.ckpt",))
        for job in ("classifier", "tagger", "answerer", "pretraining")
        for how in (d.missing, d.cut)
    ),
    *(
        Case(job, "weights elsewhere", (f"--init_checkpoint={name}",), says=(name,))
        for job in ("classifier", "tagger", "answerer", "pretraining", "vectors")
        for name in ("absent", "model/vocab.txt", "model/absent.ckpt", "/etc", "gs://no/such")
    ),
    # The file that names the newest checkpoint of a folder.
    *(
        Case(
            "vectors",
            "checkpoint files",
            ("--init_checkpoint=other",),
            {"other/checkpoint": d.holding(content)},
            ("other",),
        )
        for content in (
            "",
            "nonsense",
            'model_checkpoint_path: "../model/absent"\n',
            'model_checkpoint_path: "/etc/passwd"\n',
            'model_checkpoint_path: ""\n',
            d.NOISE,
        )
    ),
]
