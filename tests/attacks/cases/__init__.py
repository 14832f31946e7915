"""All attacks, by what is attacked. A new one is an entry in a list of these files."""

from tests.attacks.cases import (
    configs,
    locks,
    numbers,
    outputs,
    records,
    requests,
    states,
    tables,
    weights,
)

ALL = [
    *tables.CASES,
    *configs.CASES,
    *numbers.CASES,
    *weights.CASES,
    *records.CASES,
    *states.CASES,
    *outputs.CASES,
    *requests.CASES,
    *locks.CASES,
]
