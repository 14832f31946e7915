"""What files beside weights tell of how texts become ids: vocab.txt, and Hugging Face's tokenizers.

    case, accents = told_folding("model")  # tokenizer_config.json, tokenizer.json
    vocab_file = vocabulary_beside("model")  # vocab.txt, or tokenizer.json's tokens

What such files ask for and BERT's tokenizer doesn't do is refused, or told.
"""

import atexit
import functools
import json
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join
from modeling.errors import ModelingError

TOKENIZER_NAME = "tokenizer_config.json"
FAST_TOKENIZER = "tokenizer.json"
ADDED = "added_tokens.json"
VOCABULARY_NAME = "vocab.txt"
_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")
_sources: dict[str, str] = {}  # of this process's files, what each is from
_LARGEST_TOKENIZER = 100_000_000  # bytes
_ADD_WORD = (
    "Texts that hold them are cut into other pieces here. Put each that is a word of the texts, as "
    "they are folded, in the line of its id in vocab.txt."
)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Hugging Face's tokenizers that cut as BERT's does, and those that do what tokenizer.json says.
_CUTS_LIKE_BERT = re.compile(
    r"(Bert|DistilBert|MobileBert|ConvBert|SqueezeBert|Electra|LayoutLM|Lxmert|Funnel"
    r"|DPR(Question|Context)Encoder|DPRReader|PreTrained)?Tokenizer(Fast)?|TokenizersBackend"
)
# Of Hugging Face's tokenizers: where one is false, texts are cut otherwise than BERT's.
_CUTTING = ("do_basic_tokenize", "tokenize_chinese_chars", "handle_chinese_chars")


def told_folding(folder: str) -> tuple[bool | None, bool | None]:
    """Whether case is folded, and accents are dropped; None where nothing in the folder tells.

    That is what tokenizer_config.json, or else tokenizer.json, says. Tokens that were added to the
    vocabulary are told of where texts that hold them are cut here as if they had not been.

    Raises:
        ModelingError: Such a file is damaged, or asks for another tokenizer than BERT's.
    """
    _tell_of_added(folder)
    paths = join(folder, TOKENIZER_NAME), join(folder, FAST_TOKENIZER)
    configured, fast = map(_read_object, paths)
    _check_tokenizer(paths[0], configured)
    _check_tokenizer(paths[1], fast)
    folding = _folding_of_normalizer(fast)
    case = accents = None
    for values, lower in ((configured, "do_lower_case"), (folding, "lowercase")):
        told = (values.get(lower), values.get("strip_accents"))
        case, stripped = (value if isinstance(value, bool) else None for value in told)
        # Where the first tells of accents alone, the second tells of case.
        accents = stripped if accents is None else accents
        if case is not None:
            break
    return case, accents


def vocabulary_beside(folder: str) -> str | None:
    """The vocabulary in a folder, as a file with a token a line; None if there is none.

    That is vocab.txt. Where there is but a tokenizer.json, as transformers 5 leaves it, its tokens
    are written to a file of this process.

    Raises:
        ModelingError: tokenizer.json is damaged.
    """
    path = join(folder, VOCABULARY_NAME)
    if tf.io.gfile.exists(path):
        return path
    tokens = _tokens_of_tokenizer(join(folder, FAST_TOKENIZER))
    return _as_file(join(folder, FAST_TOKENIZER), "\n".join([*tokens, ""])) if tokens else None


def vocabulary_tokens(vocab_file: str) -> list[str]:
    """The tokens in a file, by the original's rule: lines, stripped.

    Raises:
        ModelingError: The file can't be read.
    """
    try:
        with tf.io.gfile.GFile(vocab_file, "rb") as file:
            text = file.read().decode("utf-8", "ignore")
    except tf.errors.OpError as error:
        raise ModelingError(
            f"The vocabulary file {vocab_file} can't be read ({type(error).__name__}). Give the "
            f"vocab.txt that belongs to the checkpoint."
        ) from error
    return [line.strip() for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]


def _tokens_of_tokenizer(path: str) -> list[str] | None:
    """What tokenizer.json holds, index = id; None if it holds no pieces of WordPiece."""
    values = _read_object(path)
    model = values.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or _cutting(model) != "WordPiece":
        return None
    prefix = model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise ModelingError(
            f"{path} marks pieces that go on a word by {prefix!r}, and BERT's vocabularies by "
            f"'##', which alone is done here. If the file isn't of this model, remove it."
        )
    pairs = {(str(number), token) for token, number in vocabulary.items()}
    pairs |= {(str(token.get("id")), str(token.get("content"))) for token in _added_tokens(values)}
    tokens = dict(pairs)
    # Of a token that stands twice in the vocab.txt that it was made from there is but one id.
    ids = [str(number) for number in range(2 * len(pairs)) if str(number) in tokens]
    odd = any("\n" in token or _SURROGATE.search(token) for token in tokens.values())
    if odd or not len(ids) == len(tokens) == len(pairs):
        raise ModelingError(
            f"{path} is damaged: the ids of its {len(pairs)} pieces and added tokens aren't "
            f"different whole numbers from 0 on, or a token holds a line's end or half a "
            f"character. Download it again; or put a vocab.txt beside it, with a token a line."
        )
    return [tokens.get(str(number), "") for number in range(int(ids[-1]) + 1)] if ids else None


@functools.cache
def _as_file(path: str, text: str) -> str:
    """A file of this process with that text, which is from `path`."""
    folder, process = tempfile.mkdtemp(prefix="vocabulary-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # and not in a forked child, which ends before
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    vocab_file = os.path.join(folder, VOCABULARY_NAME)
    with open(vocab_file, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    _sources[vocab_file] = path
    return vocab_file


def source_of_vocabulary(vocab_file: str) -> str:
    """What to call a vocabulary that `vocabulary_beside` has found: the file that it is from."""
    return _sources.get(vocab_file, vocab_file)


def _added_tokens(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = values.get("added_tokens")
    listed = listed if isinstance(listed, list) else ()
    return [token for token in listed if isinstance(token, dict)]


def _cutting(model: Mapping[str, Any]) -> Any:
    """How a tokenizer.json's model cuts words; old ones don't say so."""
    return model.get("type", "BPE" if "merges" in model else "WordPiece")


def _check_tokenizer(path: str, values: Mapping[str, Any]) -> None:
    """Refuses a tokenizer that isn't BERT's, and tells of what isn't done of one that is."""
    kind = values.get("tokenizer_class")
    cuts = values.get("model")
    cuts = _cutting(cuts) if isinstance(cuts, dict) else None
    if isinstance(kind, str) and not _CUTS_LIKE_BERT.fullmatch(kind):
        raise ModelingError(
            f"{path} asks for {kind}, which cuts texts otherwise than BERT's tokenizer (by a "
            f"dictionary, say). Texts are cut as BERT's are here, into pieces other than those "
            f"that this model was trained with. Cut them before, with blanks between words, and "
            f"remove the entry tokenizer_class."
        )
    if isinstance(cuts, str) and cuts != "WordPiece":
        raise ModelingError(
            f"{path} cuts words by {cuts}; BERT's models cut them by WordPiece, which alone is "
            f"done here, into pieces other than those that this model was trained with. If the "
            f"file isn't of this model, remove it."
        )
    ignored = [name for name in _CUTTING if values.get(name) is False]
    if ignored:
        _tell_of_ignored(path, " and ".join(ignored))


def _folding_of_normalizer(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What tokenizer.json says of folding, in the terms of its BertNormalizer; {} if nothing.

    Other normalizers fold where one of them is for that, and null folds nothing.
    """
    if "normalizer" not in values:
        return {}
    steps = [values["normalizer"]]
    for step in steps:
        inside = step.get("normalizers") if isinstance(step, dict) else None
        steps += inside if isinstance(inside, list) else []
    steps = [step for step in steps if isinstance(step, dict)]
    kinds = {step.get("type") for step in steps}
    of_bert = next((step for step in steps if "lowercase" in step), None)
    return of_bert or {"lowercase": "Lowercase" in kinds, "strip_accents": "StripAccents" in kinds}


@functools.cache  # once is enough, however often the folder is asked
def _tell_of_ignored(path: str, names: str) -> None:
    logging.warning(
        "%s says that %s is false, which isn't done here: texts are cut as BERT's are, maybe into "
        "other pieces than in this model's training.",
        path,
        names,
    )


@functools.cache
def _tell_of_added(folder: str) -> None:
    """Warns of tokens of Hugging Face's add_tokens that never come, or stand in no vocab.txt."""
    vocab_file = vocabulary_beside(folder)
    if vocab_file is None:
        return
    added = [*_read_object(join(folder, ADDED))]
    fast = _read_object(join(folder, FAST_TOKENIZER))
    added += [token.get("content") for token in _added_tokens(fast)]
    known = set(vocabulary_tokens(vocab_file))
    texts = dict.fromkeys(token for token in added if isinstance(token, str))
    whole = [token for token in texts if _is_cut(token) and not _SPECIAL.fullmatch(token)]
    unknown = [token for token in texts if token not in known and token not in whole]
    for tokens, that, remedy in (
        (unknown, "are not in its vocab.txt", _ADD_WORD),
        (whole, "hold blanks or punctuation", "Here texts are cut at these: they never come."),
    ):
        if tokens:
            logging.warning(
                "The tokenizer in %s has %d added tokens that %s: %s. %s",
                *(folder, len(tokens), that, ", ".join(tokens[:5]), remedy),
            )


def _is_cut(token: str) -> bool:
    """Whether BERT's tokenizer cuts a text like this at blanks or punctuation."""
    return len(token) > 1 and any(
        character.isspace()
        or unicodedata.category(character).startswith("P")
        or (character.isascii() and not character.isalnum())
        for character in token
    )


def _read_object(path: str) -> dict[str, Any]:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return {}
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(_LARGEST_TOKENIZER)
    try:
        values = json.loads(content)
        if not isinstance(values, dict):
            raise ValueError(f"it holds a {type(values).__name__}")
        return values
    except (ValueError, RecursionError) as error:
        raise ModelingError(
            f"{path} is no JSON object in UTF-8: {error}. It says whether the model's texts are "
            f"lower-cased: copy or download it again, or remove it and give --do_lower_case."
        ) from error
