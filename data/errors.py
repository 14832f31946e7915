"""The error that says a user's file, not our code, is at fault, and phrases of its messages."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable


class DataError(ValueError):
    """Input data can't be used.

    The message is one paragraph: what was received, where (file and line, or record number),
    what was expected, and what to do. Commands print it without a traceback.
    """


def json_error(error: ValueError | RecursionError) -> str:
    """What Python found wrong with a JSON text, said of the text."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply, in a field that may not even be used"
    return str(error)


def error_text(value: object, limit: int = 60) -> str:
    """The beginning of a value, for messages; what isn't a string is written as in JSON."""
    if isinstance(value, str):
        return repr(value if len(value) <= limit else value[:limit] + "…")
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[:limit] + "…"


def error_list(names: Iterable[str], limit: int = 40) -> str:
    """Names with commas between them, for messages, each shortened; how many more, if many."""
    # Room for what `error_text` makes, quotation marks included.
    names = [name if len(name) <= 70 else name[:70] + "…" for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def doubled(names: Iterable[str]) -> list[str]:
    """Names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """For messages: " (did you mean 'text'?)", or nothing if no known name resembles the name."""
    folded = {other.strip().casefold(): other for other in known}
    near = difflib.get_close_matches(name.strip().casefold(), folded, n=1, cutoff=cutoff)
    return f" (did you mean {error_text(folded[near[0]])}?)" if near else ""
