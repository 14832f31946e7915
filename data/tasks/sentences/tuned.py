"""What --do_eval tunes and keeps beside the weights, each in the file FLAG.json.

A label's threshold is from which probability on it is predicted; a temperature is what logits are
divided by before their softmax.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from data.errors import DataError
from data.tasks import kept
from data.tasks.sentences.examples import SentenceKind

_KINDS = {
    "label_thresholds": (SentenceKind.MULTI_LABEL,),
    "temperature": (SentenceKind.CLASSES, SentenceKind.CHOICES),
}


def check_tuned_flags(values, kind: SentenceKind) -> None:
    """Refuses tuned answers where there can't be any, before anything is trained.

    Raises:
        DataError: A flag is "tuned" that is for another kind of labels, or the weights are going
            to be trained and not evaluated.
    """
    for flag, kinds in _KINDS.items():
        if values[flag].value != "tuned":
            continue
        if kind not in kinds:
            raise DataError(
                f"--{flag}=tuned is for labels of the kind {' or '.join(k.value for k in kinds)}, "
                f"and the task's are {kind.value}. Leave it out."
            )
        if values.do_train and not values.do_eval:
            raise DataError(
                f"--{flag}=tuned with --do_train needs --do_eval: what is tuned is for the weights "
                f"that the training leaves."
            )


def keep_tuned(
    output_dir: str, labels: Sequence[str], tuned: Mapping[str, Any], weights: str
) -> None:
    """Writes what `SentenceHead.tune` found for weights, told by their checksum.

    Raises:
        DataError: The folder can't be written.
    """
    for flag, value in tuned.items():
        numbers = {flag: value} if flag == "temperature" else zip(labels, value, strict=True)
        kept.keep_numbers(output_dir, f"{flag}.json", dict(numbers), weights)


def kept_tuned(
    values, kind: SentenceKind, labels: Sequence[str], weights: str | None = None
) -> dict[str, Any]:
    """What was tuned for weights of this checksum, as `SentenceHead.tune` gave it.

    Raises:
        DataError: There is nothing, something else, or what was tuned for other weights.
    """
    flag = next(flag for flag, kinds in _KINDS.items() if kind in kinds)
    names = [flag] if flag == "temperature" else labels
    remedy = "--do_eval writes it beside the weights. Do that first, or in the same command."
    folders = values.output_dir, values.init_checkpoint
    numbers = kept.kept_numbers(*folders, f"{flag}.json", names, remedy, weights)
    if numbers is None:
        raise DataError(f"--{flag}=tuned needs {flag}.json. {remedy}")
    if flag == "temperature" and numbers[0] <= 0:
        raise DataError(f"temperature.json holds {numbers[0]}; a temperature is above 0. {remedy}")
    return {flag: numbers[0] if flag == "temperature" else numbers}
