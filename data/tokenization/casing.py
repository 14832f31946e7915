"""Whether the text is to be lower-cased, told from a released model's folder name."""

import re

from data.errors import DataError

_LOWER = (
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
)
_CASED = ("cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16", "multi_cased_L-12_H-768_A-12")


def check_casing(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Refuses a case that contradicts the checkpoint's folder, as the original does.

    Raises:
        DataError: `init_checkpoint` is `…/NAME/bert_model.ckpt`, NAME is one of the seven models
            released with the paper, and that was trained on text of the other kind.
    """
    match = re.match(r"^.*?([A-Za-z0-9_-]+)/bert_model.ckpt", init_checkpoint or "")
    if not match:
        return
    name = match[1]
    expected = True if name in _LOWER else False if name in _CASED else do_lower_case
    if do_lower_case != expected:
        raise DataError(
            f"--do_lower_case is {do_lower_case}, but the checkpoint {init_checkpoint} was "
            f"trained on {'lower-cased' if expected else 'cased'} text. Give "
            f"--do_lower_case={expected}."
        )
