"""The error that says a user's file, not our code, is at fault."""


class DataError(ValueError):
    """Input data can't be used.

    The message is one paragraph: what was received, where (file and line, or record number),
    what was expected, and what to do. Commands print it without a traceback.
    """


def json_problem(error: ValueError | RecursionError) -> str:
    """What Python found wrong with a JSON text, said of the text."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply, in a field that may not even be used"
    return str(error)
