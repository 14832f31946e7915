"""What a phase costs a machine: whole rows, memory held besides, all phases' interruptions."""

import re

import pytest

from modeling.config import BertConfig
from modeling.costs import cost_model
from modeling.costs import machines as cost_machines
from modeling.costs.estimate import estimate
from modeling.costs.phase_cost import PhaseCost
from modeling.training.phases import Phase, parse_phases


@pytest.mark.parametrize("batch, asked, parts", [(256, 3, 0), (130, 1, 0), (80, 1, 2), (80, 5, 5)])
def test_rows_are_whole(batch, asked, parts):
    """What can't be divided is refused by the program, and isn't planned."""
    config, phase = BertConfig.named("large", 30522), Phase(512, 10, batch, 77)
    options = {"half_precision": True, "accumulation_steps": asked}
    plan = PhaseCost(config, cost_machines.V5E_8, phase, 2, **options)
    assert plan.rows * parts == (batch // 8 if parts else 0)
    if parts:
        assert plan.accumulation_steps >= parts and plan.accumulation_steps % asked == 0
        assert plan.rows_text == f"{batch // 8 // plan.accumulation_steps} × " + str(
            plan.accumulation_steps
        )


def test_what_is_held_besides():
    """Gradients of micro-batches are added to others; a mean of the weights is kept."""
    config, phase = BertConfig.named("base", 30522), Phase(128, 10, 32, 20)
    weights = 4 * cost_model.parameters(config)

    def memory(**options):
        plan = PhaseCost(config, cost_machines.H100, phase, 2, half_precision=True, **options)
        return plan.memory - cost_model.step_memory(config, plan.rows, 128, 20)

    assert memory() == 0 and memory(accumulation_steps=2) == weights
    assert memory(averaged=True, accumulation_steps=4) == 2 * weights


def test_interruptions_are_of_all_phases():
    config, machines = BertConfig.named("base", 30522), [cost_machines.H100]
    options = {"machines": machines, "dtype": "bfloat16"}

    def lost(phases, **more):
        [line] = [
            t for t in estimate(config, phases, **options, **more).splitlines() if "every" in t
        ][1:]
        return [float(share[:-1]) for share in re.findall(r"[0-9.]+%", line)]

    first, second = parse_phases("128:9000:256"), parse_phases("512:1000:256")
    both = parse_phases("128:9000:256,512:1000:256")
    plans = [PhaseCost(config, machines[0], p, 2, half_precision=True) for p in both]
    times = [p.num_steps * plan.seconds for p, plan in zip(both, plans, strict=True)]
    for share, *parts in zip(lost(both), lost(first), lost(second), strict=True):
        wanted = (times[0] * parts[0] + times[1] * parts[1]) / sum(times)
        assert share == pytest.approx(wanted, abs=0.11)
    assert "every 1,000 steps, 2 min" in estimate(
        config, both, save_checkpoints_minutes=2, **options
    )
    assert lost(both, save_checkpoints_minutes=1e9) == lost(both)
    assert lost(both, save_checkpoints_minutes=2) != lost(both)
    too_few = parse_phases("128:10:128,512:10:256")
    text = estimate(BertConfig.named("large", 30522), too_few, machines=[cost_machines.V5E_256])
    assert "batch isn't n × 256" in text and "best interval" not in text


def test_16_bits_are_told_of():
    config, phases = BertConfig.named("tiny", 1000), parse_phases("64:10:32")
    said = "Accelerators are counted with 16-bit numbers"
    assert said in estimate(config, phases) and said not in estimate(
        config, phases, dtype="bfloat16"
    )
