"""Files of the project's own in run folders and exports, which it checks like a stranger's."""

from tests.attacks import damages as d
from tests.attacks.suite import Case

SPOILED = (
    d.empty,
    d.cut,
    d.binary,
    d.holding("[]"),
    d.holding("5"),
    d.holding("{}"),
    d.holding("null"),
)
NO_FIELDS = d.holding("{}")
FORM = (d.holding("[]"), d.holding("5"), NO_FIELDS, d.holding("null"), d.holding("[" * 10**5))
WEIGHTS = "out/model.ckpt-2"
VARIABLES = "export/1/variables/variables"

CASES = [
    *(
        Case(job, "labels", spoil={"out/labels.json": how}, says=("labels.json|model.ckpt-2",))
        for job in ("classifier predicts", "tagger predicts")
        for how in (
            *SPOILED,
            d.folder,
            d.holding("[" * 10**5),
            d.fields(labels=5),
            d.fields(labels=[5, 6]),
            d.fields(labels=["bad", "bad"]),
            d.fields(labels=["bad"]),
            d.fields(labels=["bad", "good", "ugly"]),
            d.fields(labels=[]),
            d.fields(labels=...),
        )
    ),
    *(
        Case("classifier predicts", "labels", spoil={"out/labels.json": how}, says=("labels.json",))
        for how in (d.fields(kind=5), d.fields(kind="numbers"), d.fields(text_columns=5))
    ),
    *(
        Case(job, "labels", spoil={"out/labels.json": d.missing}, says=("labels.json|label",))
        for job in ("classifier predicts", "tagger predicts")
    ),
    *(
        Case(job, "checkpoints of runs", spoil={file: how}, says=("model.ckpt-2|out",))
        for job, damages in (
            ("classifier predicts", (d.empty, d.cut, d.binary, d.flipped)),
            ("tagger predicts", (d.cut,)),
            ("answerer predicts", (d.empty,)),
            ("classifier exports", (d.binary,)),
            ("pretraining again", (d.flipped,)),
        )
        for file in (f"{WEIGHTS}.index", f"{WEIGHTS}.data-00000-of-00001")
        for how in damages
    ),
    Case(
        "classifier predicts",
        "checkpoints of runs",
        spoil={f"{WEIGHTS}.data-00000-of-00001": d.missing},
        says=("model.ckpt-2",),
    ),
    # Not essential: the run goes on, with a new one where it writes it.
    *(
        Case("classifier again", "logs", spoil={f"out/{file}": how}, says=says, code=0)
        for file, how, says in (
            ("metrics.jsonl", d.empty, ()),
            ("metrics.jsonl", d.cut, ("metrics.jsonl",)),
            ("metrics.jsonl", d.binary, ("metrics.jsonl",)),
            ("run_summary.json", d.binary, ("run_summary.json",)),
            ("run_summary.json", d.holding("[5]"), ("run_summary.json",)),
        )
    ),
    Case(
        "classifier again", "logs", spoil={"out/metrics.jsonl": d.folder}, says=("metrics.jsonl",)
    ),
    *(
        Case(
            "classifier again",
            "identity of runs",
            spoil={"out/training.json": how},
            says=("training.json",),
        )
        for how in (d.cut, d.binary, d.folder, *FORM)
        # An older run's lacks settings, maybe all.
        if how is not NO_FIELDS
    ),
    *(
        Case(
            "classifier searches again",
            "results of searches",
            spoil={"out/runs/lr0.001-bs4-ep3-seed12345/result.json": how},
            says=("result.json",),
        )
        for how in (*SPOILED, d.folder)
    ),
    *(
        Case("prediction", "exports", spoil={file: how}, says=("export",))
        for file in (
            "export/1/saved_model.pb",
            f"{VARIABLES}.index",
            f"{VARIABLES}.data-00000-of-00001",
        )
        for how in (d.missing, d.empty, d.cut, d.binary, d.folder)
    ),
    *(
        Case("prediction", "exports", spoil={"export/1": how}, says=("export",))
        for how in (d.missing, d.empty, d.folder, d.dangling_link, d.circular_link)
    ),
]
