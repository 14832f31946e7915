"""What lies beside a model's weights, so that nobody needs more than its folder.

    bert_config.json        sizes, kind of head, names of its outputs
    vocab.txt               the vocabulary
    tokenizer_config.json   how text is folded, as Hugging Face's files say it

A run's output folder has these from its first step on; others' formats have their own places.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from modeling.checkpoints.configurations import config_of_checkpoint
from modeling.checkpoints.files import (
    ANSWER_FILES,
    LABELS_FILE,
    WEIGHTS_ENDINGS,
    folders_of_checkpoint,
    join,
    staged,
    write_staged_text,
)
from modeling.checkpoints.heads import config_with_trained_head
from modeling.checkpoints.inspection.tokenizer_files import (
    ADDED,
    FAST_TOKENIZER,
    TOKENIZER_NAME,
    VOCABULARY_NAME,
    vocabulary_beside,
)
from modeling.checkpoints.loading import open_contents
from modeling.checkpoints.vocabularies import (
    TextFolding,
    describe_vocabulary,
    kept_folding,
    text_folding,
    tokenizer_config,
    vocabulary_file,
)
from modeling.config import BertConfig
from modeling.errors import ModelingError

CONFIG_NAME = "bert_config.json"


class ModelFolder(NamedTuple):
    """What is known of a model besides its weights.

    Attributes:
        config: Its configuration.
        vocab_file: Path of its vocabulary; None if there is none.
        folding: How its texts are folded.
    """

    config: BertConfig
    vocab_file: str | None
    folding: TextFolding


def open_model_folder(
    path: str | os.PathLike, config_file: str | os.PathLike | None = None
) -> ModelFolder:
    """What lies beside the weights at `path`, in any format that is read.

    Args:
        path: As `checkpoints.load` takes it.
        config_file: The configuration, where it is known; by default that beside the weights.

    Raises:
        ModelingError: There is no checkpoint, no configuration, or a file can't be read.
    """
    held = open_contents(path)
    config = config_of_checkpoint(held, config_file)
    return ModelFolder(
        config_with_trained_head(held.shapes, config, held.head),
        vocabulary_file(held.format, held.path),
        text_folding(path),
    )


def labels_of_checkpoint(path: str | os.PathLike, head: str | None) -> list[str]:
    """What the outputs of a checkpoint's head are called; [] if nothing beside it tells.

    That is id2label in its configuration, or labels.json as a run has kept it.

    Args:
        path: As `checkpoints.load` takes it.
        head: What it has to answer, a key of `config.HEADS`; [] for another head.

    Raises:
        ModelingError: There is no checkpoint.
    """
    held = open_contents(path)
    with contextlib.suppress(ModelingError):  # no configuration lies there
        config = config_with_trained_head(held.shapes, config_of_checkpoint(held), held.head)
        if config.head != head:
            return []
        if config.labels:
            return config.labels
    for folder in folders_of_checkpoint(held.path):
        file = join(folder, LABELS_FILE)
        if tf.io.gfile.exists(file):
            # Whoever needs them refuses a damaged file; here it tells nothing.
            damaged = contextlib.suppress(ValueError, AttributeError, TypeError, RecursionError)
            with tf.io.gfile.GFile(file) as content, damaged:
                return [str(name) for name in json.load(content).get("labels", ())]
    return []


def kept_model_files(directory: str) -> ModelFolder | None:
    """What `keep_model_files` has put into a run's output folder; None if it hasn't yet.

    Raises:
        ModelingError: A file can't be read.
    """
    config_file, vocab_file = join(directory, CONFIG_NAME), join(directory, VOCABULARY_NAME)
    if not tf.io.gfile.exists(config_file):
        return None
    return ModelFolder(
        BertConfig.from_json_file(config_file),
        vocab_file if tf.io.gfile.exists(vocab_file) else None,
        kept_folding(directory),
    )


def keep_model_files(
    directory: str,
    config: BertConfig,
    vocab_file: str | None,
    folding: TextFolding,
    write: bool = True,
) -> None:
    """Puts beside the weights that a run will write what else they need; see above.

    A file that is there stays as it is and has to say the same: it may be one that the run reads.

    Args:
        directory: The run's output folder.
        config: The model's, with its head.
        vocab_file: Its vocabulary; None if only the records know it.
        folding: As its texts are read.
        write: Whether this process is the one that writes.

    Raises:
        ModelingError: The folder is of another model.
    """
    contents = {CONFIG_NAME: config.to_json_string()}
    if folding.do_lower_case is not None:
        contents[TOKENIZER_NAME] = tokenizer_config(folding, config.max_position_embeddings)
    if vocab_file:
        with tf.io.gfile.GFile(vocab_file, "rb") as file:
            contents[VOCABULARY_NAME] = file.read()
    there = {name for name in contents if tf.io.gfile.exists(join(directory, name))}
    for name in there:
        path = join(directory, name)
        if name == CONFIG_NAME:
            difference = _config_difference(BertConfig.from_json_file(path), config)
        elif name == TOKENIZER_NAME:
            difference = _folding_difference(kept_folding(directory), folding)
        else:
            difference = _vocabulary_difference(path, vocab_file)
        if difference:
            raise ModelingError(
                f"{path} is of another model: {difference}. It is kept beside the weights that "
                f"are trained in {directory}, and can't describe both: give another --output_dir, "
                f"or --overwrite_output_dir to train anew in this one."
            )
    missing = {name: content for name, content in contents.items() if name not in there}
    if write and missing:
        with staged(directory) as temporary:
            for name, content in missing.items():
                if isinstance(content, str):
                    write_staged_text(join(temporary, name), content)
                else:
                    with tf.io.gfile.GFile(join(temporary, name), "wb") as file:
                        file.write(content)


def task_files(file: str, file_names: Sequence[str]) -> dict[str, str]:
    """What tells of a task beside a checkpoint, as `find` names it: paths by name."""
    return {
        name: join(folder, name)
        for folder in folders_of_checkpoint(file)[::-1]
        for name in file_names
        if tf.io.gfile.exists(join(folder, name))
    }


def check_nobody_elses(
    directory: str | os.PathLike,
    file: str | None,
    task_files: Sequence[str],
    vocab_file: str | os.PathLike | None,
    folding: TextFolding,
    written: Sequence[str] = (),
) -> None:
    """Refuses a folder where files of another model would lie beside the weights to be written.

    Args:
        directory: That folder.
        file: The checkpoint that is read, as `find` names it: its own folder is no other's. None:
            the weights are a model's.
        task_files: Names of those beside it that come along.
        vocab_file, folding: What is written besides.
        written: Names of files that the format has, and that are replaced in any case. Where they
            are told, no other weights may be there with another vocabulary.

    Raises:
        ModelingError: Names the files.
    """
    directory, folders = os.fspath(directory), folders_of_checkpoint(file) if file else []
    if os.path.realpath(directory) in map(os.path.realpath, folders):
        return
    replaced = {n for n in task_files for f in folders if tf.io.gfile.exists(join(f, n))}
    replaced |= {VOCABULARY_NAME} if vocab_file else set()
    replaced |= {TOKENIZER_NAME} if folding != TextFolding() else set()
    replaced |= {*written}
    others = [*ANSWER_FILES, VOCABULARY_NAME, TOKENIZER_NAME]
    # Of the same vocabulary they are of the model that is written: an earlier writing of it.
    there = vocabulary_beside(os.fspath(directory))
    same = vocab_file and there and not _vocabulary_difference(there, vocab_file)
    others += [] if same else [FAST_TOKENIZER, ADDED]
    left = [n for n in others if n not in replaced and tf.io.gfile.exists(join(directory, n))]
    if written and vocab_file and there and not same:
        # Weights that stay would be read with the vocabulary that comes.
        names = sorted(tf.io.gfile.listdir(directory))
        left += [n for n in names if n.endswith(WEIGHTS_ENDINGS) and n not in written]
    if left:
        raise ModelingError(
            f"The folder {directory} holds {', '.join(left)} of another model, by which the "
            f"weights written there would be read. Remove them, or give another folder."
        )


def _config_difference(earlier: BertConfig, now: BertConfig) -> str:
    fields: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    both = earlier.encoder_dict(), now.encoder_dict()
    sizes = {name for name in vars(now) if name not in ("extra", "head")}
    fields += [(name, *both) for name in sorted(sizes)]
    if earlier.head and now.head:
        fields.append(("head", {"head": earlier.head}, {"head": now.head}))
        fields.append(("id2label", earlier.extra, now.extra))
    return "; ".join(
        f"{name} is {str(before.get(name))[:200]} there and {str(after.get(name))[:200]} here"
        for name, before, after in fields
        if before.get(name) != after.get(name)
    )


def _vocabulary_difference(earlier: str, now: str) -> str:
    same = describe_vocabulary(earlier)["checksum"] == describe_vocabulary(now)["checksum"]
    return "" if same else f"its tokens aren't those of {now}"


def _folding_difference(earlier: TextFolding, now: TextFolding) -> str:
    known = earlier.do_lower_case is not None
    same = (earlier.do_lower_case, earlier.drops_accents) == (now.do_lower_case, now.drops_accents)
    return f"it says {_said(earlier)}, and here is {_said(now)}" if known and not same else ""


def _said(folding: TextFolding) -> str:
    return f"do_lower_case {folding.do_lower_case}, strip_accents {folding.strip_accents}"
