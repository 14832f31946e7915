"""Outputs over inputs, by any path to them, and outputs that can't be."""

from tests.attacks import damages as d
from tests.attacks.suite import Case


def over(job: str, file: str, flag: str) -> list[Case]:
    """The output is an input: by name, by other paths, by links of both kinds."""
    return [
        Case(job, "outputs over inputs", (f"--{flag}={path}",), spoil, (f"{flag}|{path}",))
        for path, spoil in (
            (file, {}),
            (f"./{file}", {}),
            ("soft", {"soft": d.link_to(file)}),
            ("hard", {"hard": d.hard_link_to(file)}),
            (f"here/{file}", {"here": d.link_to(".")}),
        )
    ]


CASES = [
    *over("records", "corpus.txt", "output_file"),
    *over("records", "model/vocab.txt", "output_file"),
    *over("vocabulary", "corpus.txt", "output_file"),
    *over("extended vocabulary", "unused.txt", "output_file"),
    *over("extended vocabulary", "corpus.txt", "output_file"),
    *(
        Case("pruned model", "outputs over inputs", (f"--output_dir={path}",), spoil, (said,))
        for path, said, spoil in (
            ("model", "output_dir|model", {}),
            ("./model/", "output_dir|model", {}),
            ("soft", "output_dir|model", {"soft": d.link_to("model")}),
        )
    ),
    *over("inspection", "model/vocab.txt", "json"),
    *over("inspection", "model/vocab.txt", "plot"),
    *over("inspection", "records/part-00001-of-00003.tfrecord", "json"),
    *over("inspection", "records/part-00001-of-00003.tfrecord", "plot"),
    *over("vectors", "texts.txt", "output_file"),
    *over("vectors", "model/vocab.txt", "output_file"),
    *over("vectors", "model/bert_config.json", "output_file"),
    *over("vectors", "model/bert_model.ckpt.index", "output_file"),
    *over("vectors of safetensors", "hf/model.safetensors", "output_file"),
    *over("prediction", "texts.txt", "output_file"),
    *over("prediction", "export/1/saved_model.pb", "output_file"),
    *(
        Case(
            job,
            "outputs over inputs",
            (f"--output={path}", f"--format={format}"),
            spoil,
            (f"output|{path}",),
        )
        for job, folder, format in (
            ("to huggingface", "model", "tf1"),
            ("to tf1", "hf", "huggingface"),
        )
        for path, spoil in (
            (folder, {}),
            (f"./{folder}/", {}),
            ("soft", {"soft": d.link_to(folder)}),
        )
    ),
    *(
        Case(
            "classifier predicts",
            "outputs over inputs",
            (f"--test_file=out/{name}",),
            {f"out/{name}": d.holding("text\ngood film\n")},
            (name,),
        )
        for name in ("predictions.tsv", "test_results.tsv")
    ),
    Case(
        "tagger predicts",
        "outputs over inputs",
        ("--test_file=out/predictions.txt",),
        {"out/predictions.txt": d.holding("ann B-PER\n\n")},
        ("predictions.txt",),
    ),
    Case(
        "answerer predicts",
        "outputs over inputs",
        ("--predict_file=out/predictions.json",),
        {
            "out/predictions.json": d.holding(
                '{"data": [{"paragraphs": [{"context": "it is ann", '
                '"qas": [{"id": "q", "question": "who"}]}]}]}'
            )
        },
        ("predictions.json",),
    ),
    *(
        Case(job, "folders that can't be", (f"--{flag}={path}",), {}, (flag + "|" + path,))
        for job, flag in (
            ("classifier", "output_dir"),
            ("tagger", "output_dir"),
            ("answerer", "output_dir"),
            ("pretraining", "output_dir"),
            ("to huggingface", "output"),
            ("export of vectors", "export_dir"),
            ("classifier exports", "export_dir"),
        )
        for path in ("model/vocab.txt", "model/vocab.txt/below", "/proc/none/out")
    ),
    *(
        Case(job, "files that can't be", (f"--{flag}={path}", *more), {}, (flag + "|" + path,))
        for job, flag, more in (
            ("records", "output_file", ("--num_shards=0",)),
            ("vocabulary", "output_file", ()),
            ("inspection", "json", ()),
            ("inspection", "plot", ()),
            ("vectors", "output_file", ()),
            ("prediction", "output_file", ()),
        )
        for path in ("model", "/proc/none/file", "/dev/null/file")
        # Where there is no such folder for a job.
        if not (path == "model" and job in ("vocabulary", "prediction"))
    ),
    Case("classifier predicts", "starting anew", ("--overwrite_output_dir",), says=("overwrite",)),
    Case(
        "classifier again",
        "starting anew",
        ("--overwrite_output_dir", "--init_checkpoint=out/model.ckpt-2"),
        says=("init_checkpoint",),
    ),
    *(
        Case("classifier again", "another run's folder", flags, {}, ("out",))
        for flags in (
            ("--train_batch_size=8",),
            ("--label_column=text", "--text_columns=verdict"),
            ("--learning_rate=1e-3",),
            ("--optimizer=lamb",),
        )
    ),
]
