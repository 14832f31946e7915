"""The paper's scale: the commands, and what they cost by the cost model. Nothing is run.

The released models are expected by path, in the folder that --released names, each in a folder of
its published name (uncased_L-12_H-768_A-12 for base, uncased_L-24_H-1024_A-16 for large) with
bert_model.ckpt, bert_config.json and vocab.txt; the data by the paths in the commands.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

from modeling.config import LEFT_TO_RIGHT, BertConfig
from modeling.costs import machines as cost_machines
from modeling.costs.phase_cost import PhaseCost
from modeling.training.phases import Phase, parse_phases
from tests.paper.experiment import Place, flag

VOCAB_SIZES = {"uncased": 30522, "cased": 28996}
FOLDERS = {
    ("uncased", "base"): "uncased_L-12_H-768_A-12",
    ("uncased", "large"): "uncased_L-24_H-1024_A-16",
    ("cased", "base"): "cased_L-12_H-768_A-12",
    ("cased", "large"): "cased_L-24_H-1024_A-16",
}
# "1M steps … batch size of 256 … 90 % of the steps with length 128" (appendix A.2).
PRETRAINING = "128:900000:256:20,512:100000:256:77"


@dataclasses.dataclass(frozen=True)
class Launch:
    """A command at the paper's scale.

    Attributes:
        what: It gives.
        script: Of the project.
        flags: By name.
        config: Of the model.
        phases: What all its runs train, one after the other.
        runs: How often that is trained: seeds and settings of a search.
        labels: Of a row, for the cost.
    """

    what: str
    script: str
    flags: dict[str, object]
    config: BertConfig
    phases: Sequence[Phase]
    runs: int = 1
    labels: int = 2

    @property
    def command(self) -> str:
        """For the shell."""
        flags = [flag(name, value) for name, value in (self.flags | {"dtype": "bfloat16"}).items()]
        return " \\\n    ".join(["python " + self.script, *map(shlex.quote, flags)])

    def hours(self, machine: cost_machines.Machine) -> float | None:
        """On a machine; None if it can't be done there as it is."""
        hours = 0.0
        for phase in self.phases:
            plan = PhaseCost(self.config, machine, phase, self.labels, half_precision=True)
            if not plan.rows:
                return None
            hours += self.runs * phase.num_steps * plan.seconds / 3600
        return hours


def config_of(size: str, vocabulary: str = "uncased", **fields) -> BertConfig:
    """Of a released model."""
    return BertConfig.named(size, VOCAB_SIZES[vocabulary], **fields)


def released(place: Place, size: str, vocabulary: str = "uncased") -> dict[str, object]:
    """Flags for a released model."""
    folder = place.released / FOLDERS[vocabulary, size]
    flags = {
        "vocab_file": folder / "vocab.txt",
        "bert_config_file": folder / "bert_config.json",
        "init_checkpoint": folder / "bert_model.ckpt",
    }
    return flags | ({"do_lower_case": False} if vocabulary == "cased" else {})


def tuning(
    what: str,
    script: str,
    flags: Mapping[str, object],
    config: BertConfig,
    examples: int,
    seq_length: int,
    batch_size: int = 32,
    epochs: float = 3,
    runs: int = 1,
    labels: int = 2,
) -> Launch:
    """Fine-tuning; as if every text had `seq_length` pieces, so hours are the most there can be."""
    if script != "run_squad.py":
        flags = {**flags, "original_head": True}
    number = math.ceil(examples / batch_size * epochs)
    phases = [Phase(seq_length, number, batch_size, 0)]
    return Launch(what, script, flags, config, phases, runs, labels)


def pretraining(
    place: Place,
    what: str,
    name: str,
    config: BertConfig,
    phases: str = PRETRAINING,
    **flags,
) -> Launch:
    """Pre-training as in the paper, on records of Wikipedia and books."""
    given = {
        "input_file": "records/{max_seq_length}/*.tfrecord",
        "bert_config_file": f"{name}/bert_config.json",
        "vocab_file": place.released / FOLDERS["uncased", "base"] / "vocab.txt",
        "phases": phases,
        "num_warmup_steps": 10000,
        "learning_rate": 1e-4,
        "do_train": True,
        "do_eval": True,
        "output_dir": name,
        **flags,
    }
    if flags.get("objective") in ("ltr", "rtl"):  # either costs the same
        config = dataclasses.replace(config, attention_direction=LEFT_TO_RIGHT)
    labels = 2 if flags.get("objective", "mlm_nsp") == "mlm_nsp" else 0
    return Launch(what, "run_pretraining.py", given, config, parse_phases(phases), labels=labels)


def show(launches: Sequence[Launch], place: Place) -> None:
    """Prints everything."""
    machines = cost_machines.ACCELERATORS
    totals = {machine.name: 0.0 for machine in machines}
    for launch in launches:
        print(f"# {launch.what}")
        print(launch.command)
        costs = []
        for machine in machines if launch.phases else ():
            hours = launch.hours(machine)
            if hours is None:
                totals[machine.name] = math.nan
                costs.append(f"{machine.name}: batch too small or memory too little")
                continue
            totals[machine.name] += hours
            costs.append(f"{machine.name} {_money(machine, hours)}")
        often = f"{launch.runs} runs: " if launch.runs > 1 else ""
        print(f"# {often}{'; '.join(costs) or 'no training'}\n")
    print("# All of it, by the cost model:")
    for machine in machines:
        hours = totals[machine.name]
        if not math.isnan(hours):
            print(f"#   {machine.name}: {_money(machine, hours)} ({machine.price.source})")
    print(
        "# Hours are of training alone, with every text at full length. On a GPU add --xla, on a "
        "TPU --use_tpu and --tpu_name;\n# where a batch is too large for the memory, "
        "--gradient_accumulation_steps (python -m tests.paper.pretraining_costs prints how many)."
    )
    missing = sorted(
        str(path)
        for path in {place.released / folder for folder in FOLDERS.values()}
        if any(str(path) in launch.command for launch in launches) and not path.is_dir()
    )
    if missing:
        print(f"# Not there yet: {', '.join(missing)}; --released names the folder above them.")


def _money(machine: cost_machines.Machine, hours: float) -> str:
    return f"{hours:.3g} h, ${machine.dollars(hours):,.2f}"
