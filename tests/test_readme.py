"""The documents are true: flags, commands, paths and links are there, and what may run does."""

import re

import pytest

from tests.readme import commands, markdown, running
from tests.scripts import ROOT, succeed

# Flags of other programs that the documents name: pip, saved_model_cli, TF Serving, Apache Beam.
FOREIGN = {
    *("no", "dir", "tag_set", "signature_def"),
    *("model_config_file", "enable_batching", "batching_parameters_file"),
    *("tensorflow_inter_op_parallelism", "tensorflow_intra_op_parallelism"),
    *("project", "region", "temp_location"),
}
# Where `tests.readme.small_data` puts what these variables name.
FOLDERS = {"GLUE_DIR": "glue", "SQUAD_DIR": "squad", "CONLL_DIR": "conll"}
MARKS = re.compile(r"run|run: slow|not run: .+|tests")
LINES_OF_README = 300

DOCUMENTS = {str(path.relative_to(ROOT)): path for path in markdown.documents()}


@pytest.fixture(scope="module", params=DOCUMENTS)
def document(request):
    return DOCUMENTS[request.param]


@pytest.fixture(scope="module")
def bert_base_dir(tmp_path_factory):
    """In place of a released model: a tiny one."""
    folder = tmp_path_factory.mktemp("released")
    succeed("-m", "tests.readme.tiny_model", folder)
    return folder


def test_readme_is_short():
    assert len(DOCUMENTS["README.md"].read_text("utf-8").splitlines()) <= LINES_OF_README


def test_every_flag_is_in_some_document():
    texts = [path.read_text("utf-8") for path in DOCUMENTS.values()]
    named = {name for text in texts for name in re.findall(r"--([a-z]\w+)", text)}
    defined = commands.all_flags()["product"]
    assert len(defined) > 100
    assert sorted(defined - named) == []


def test_flags_are_those_of_the_command(document):
    text = document.read_text("utf-8")
    lines = [block.text for block in markdown.blocks(text) if block.language in ("bash", "setup")]
    lines += [
        f"python {code}" for code in markdown.inline_code(text) if re.match(r"run_\w+\.py", code)
    ]
    lines += [code for code in markdown.inline_code(text) if code.startswith("python ")]
    for line in lines:
        for name, given in commands.commands(line):
            source = commands.source_of(name)
            if name.startswith("."):  # a file of the block's own
                continue
            assert source.exists(), f"{name} is no script or module"
            assert sorted(set(given) - commands.flags_of(source)) == [], name


def test_flags_in_the_text_are_there(document):
    text = document.read_text("utf-8")
    named = {name for code in markdown.inline_code(text) for name in re.findall(r"--(\w+)", code)}
    known = frozenset().union(commands.COMMON, FOREIGN, *commands.all_flags().values())
    assert sorted(named - known) == []


def test_paths_in_the_text_are_there(document):
    text = document.read_text("utf-8")
    for code in markdown.inline_code(text):
        if re.fullmatch(r"((tests|data|modeling|\.ci)/[\w./-]*|run_\w+\.py)", code):
            assert (ROOT / code).exists(), code


def test_links_lead_somewhere(document):
    text = document.read_text("utf-8")
    for target in markdown.links(text):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        assert ROOT in file.parents or file == ROOT, target
        if anchor:
            assert anchor in markdown.anchors(file.read_text("utf-8")), target


def test_messages_are_what_is_printed():
    text = (ROOT / "modeling/training/TROUBLESHOOTING.md").read_text("utf-8")
    quoted = [block.text for block in markdown.blocks(text) if block.language == "text"]
    parts = [part.strip(" ;:,.()=") for line in quoted for part in re.split("[…\n:;]", line)]
    printed = commands.messages()
    assert len(parts) > 50
    assert [part for part in parts if part not in printed] == []


def test_every_fence_is_read(document):
    """None is indented, or has more than a word behind it, by which it would escape the checks."""
    text = document.read_text("utf-8")
    fenced = [block for block in markdown.blocks(text) if block.language != "setup"]
    assert text.count("```") == 2 * len(fenced)


def test_there_are_blocks_that_run():
    assert len(QUICK) >= 3 and len(_marked("run: slow")) >= 6


def test_blocks_say_whether_they_run(document):
    for block in markdown.blocks(document.read_text("utf-8")):
        if block.language in ("bash", "python"):
            place = f"{document.relative_to(ROOT)}:{block.line}"
            assert MARKS.fullmatch(block.mark), (
                f"{place}: {block.mark or 'no mark above the fence'}"
            )


def _marked(*marks: str) -> list[str]:
    """Documents that have a block with one of the marks."""
    return [
        name
        for name, path in DOCUMENTS.items()
        if any(block.mark in marks for block in markdown.blocks(path.read_text("utf-8")))
    ]


def _run(name: str, folder, bert_base_dir, request, *marks: str) -> None:
    text = DOCUMENTS[name].read_text("utf-8")
    blocks = markdown.blocks(text)
    wanted = [block for block in blocks if block.language == "setup" or block.mark in marks]
    variables = FOLDERS | {"BERT_BASE_DIR": str(bert_base_dir)}
    if "$FORMATS_DIR" in text:
        variables["FORMATS_DIR"] = str(request.getfixturevalue("golden") / "formats")
    running.run(wanted, folder, variables)


QUICK = [name for name in _marked("run") if name not in _marked("run: slow")]


@pytest.mark.parametrize("name", QUICK)
def test_blocks_run(name, tmp_path, bert_base_dir, request):
    _run(name, tmp_path, bert_base_dir, request, "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", _marked("run: slow"))
def test_slow_blocks_run(name, tmp_path, bert_base_dir, request):
    _run(name, tmp_path, bert_base_dir, request, "run", "run: slow")
