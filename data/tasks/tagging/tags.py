"""The tags that a model predicts: collected from a training set, kept with the model."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import logging

from data.errors import DataError, error_list
from data.tasks import labels
from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.schemes import MODEL_SCHEMES, OUTSIDE, SCHEMES, split_tag

NO_TAG, UNKNOWN_TAG = -1, -2
"""In place of a tag's number. −1: nothing is to be learned there, since there is no word, or no tag
that the model knows. −2: a word whose tag nobody tells, to be learned from a teacher."""


@dataclasses.dataclass(frozen=True)
class TagSet:
    """The tags in the order of their numbers: O, then every letter of the scheme with every type.

    So a type that only has entities of one word in training can be predicted with several.

    Attributes:
        scheme: Of the tags.
        names: Of the tags.
        split_characters: Whether characters are tagged, not words; see `characters`.
    """

    scheme: str
    names: tuple[str, ...]
    split_characters: bool = False

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, sentences: Sequence[ConllSentence]) -> np.ndarray:
        """int32, of all words of all sentences; NO_TAG where there is none or one not known.

        Unknown ones are logged with the place of their sentence.
        """
        number = {name: index for index, name in enumerate(self.names)}
        unknown: dict[str, str] = {}
        numbers: list[int] = []
        for sentence in sentences:
            tags = sentence.tags
            if tags is None:
                numbers += [NO_TAG] * len(sentence.words)
                continue
            numbers += [number.get(tag, NO_TAG) for tag in tags]
            for tag in {*tags} - number.keys():
                unknown.setdefault(tag, sentence.source)
        if unknown:
            logging.warning(
                "Tags that training didn't have, and that can't be predicted: %s. Their words "
                "don't count in the loss; in the scores by entity they do.",
                error_list(f"{tag} (sentence at {source})" for tag, source in unknown.items()),
            )
        return np.array(numbers, np.int32)


def make_tag_set(
    sentences: Sequence[ConllSentence], scheme: str, split_characters: bool = False
) -> TagSet:
    """The tags of a training set, whose tags are of that scheme.

    Raises:
        DataError: It has no entity.
    """
    types = {split_tag(tag) for sentence in sentences for tag in {*(sentence.tags or ())}}
    types = sorted({kind for letter, kind in types if letter != OUTSIDE})
    if not types:
        raise DataError(
            f"{sentences[0].source.rpartition(':')[0]}: not one of {len(sentences)} sentences has "
            f"an entity, so there is nothing to learn. Check that --tag_column is the column of "
            f"the tags."
        )
    names = (f"{letter}-{kind}" if kind else letter for kind in types for letter in SCHEMES[scheme])
    return TagSet(scheme, (OUTSIDE, *names), split_characters)


def saved_tags(tags: TagSet) -> dict:
    """Scheme and tags as they are kept with a model, for `load_tags`."""
    saved = {"scheme": tags.scheme, "labels": list(tags.names)}
    # Not where it is false, so that folders of before there was a choice stay as they are.
    return saved | ({"split_characters": True} if tags.split_characters else {})


def load_tags(
    output_dir: str,
    init_checkpoint: str | None,
    names: Sequence[str] | None = None,
    split_characters: bool = False,
) -> TagSet:
    """Reads what was kept beside the weights that will be used, see `labels.task_label_places`.

    Args:
        output_dir: Of the run.
        init_checkpoint: Weights from elsewhere.
        names: The tags as the model's configuration tells them; they count where none were kept.
        split_characters: What the flag says. What was kept counts without it.

    Raises:
        DataError: There is none, or it can't be read or is another, or is of words where the flag
            is for characters.
    """
    path = labels.find_labels(output_dir, init_checkpoint)
    if path is None and names:
        letters = {name.partition("-")[0] for name in names}
        scheme = "iobes" if letters & {"E", "S"} else "iob2"
        if OUTSIDE not in names or not letters <= {OUTSIDE, *SCHEMES[scheme]}:
            raise DataError(
                f"The model's configuration names the tags {error_list(names)}; expected O, and "
                f"B-, I- (and E-, S-) before types of entities. Train it here on such tags."
            )
        return TagSet(scheme, tuple(names), split_characters)
    if path is None:
        places = " and ".join(labels.task_label_places(output_dir, init_checkpoint))
        raise DataError(
            f"The tags of the model aren't known: {places} can't be read, as there is no such "
            "file. It is written beside a model when that is trained; without it give the "
            "--train_file."
        )

    def form(saved) -> TagSet:
        scheme, names = saved["scheme"], labels.task_label_strings(saved, "labels")
        tags = TagSet(scheme, names, saved.get("split_characters") is True)
        if tags.scheme not in MODEL_SCHEMES or OUTSIDE not in tags.names:
            raise ValueError("the scheme or the list of labels is not one of this script")
        return tags

    tags = labels.read_labels(path, form)
    if split_characters and not tags.split_characters:
        raise DataError(
            f"{path}: the model was trained to tag words, and --split_characters is given; expected"
            " a model that was trained with that flag. Leave it out, or train with it."
        )
    return tags
