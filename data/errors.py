"""The error that says a user's file, not our code, is at fault."""


class DataError(ValueError):
    """Input data can't be used.

    The message is one paragraph: what was received, where (file and line, or record number),
    what was expected, and what to do. Commands print it without a traceback.
    """
