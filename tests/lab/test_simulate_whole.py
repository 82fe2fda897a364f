"""The whole conversation trace in virtual time, on one core."""

from __future__ import annotations

import resource
import time

import pytest

from stagehold.lab.simulate import Simulation, SimulationOptions
from stagehold.lab.simulate_report import faults, figures
from stagehold.lab.virtual_costs import AcceleratorName, ModelName, device_tokens, preset

SECONDS = 300
MEMORY_KIB = 4 << 20


@pytest.mark.soak
def test_an_hour_of_trace_takes_minutes() -> None:
    """12,031 requests, 145 million prompt tokens at full size: nearly all that could be hit is, within the bounds."""
    machine = (ModelName.LLAMA_3_1_8B, AcceleratorName.H100, 4)
    start = time.process_time()
    simulation = Simulation(SimulationOptions(cost=preset(*machine), device_tokens=device_tokens(*machine)))
    found = figures(simulation, simulation.run())
    spent = time.process_time() - start
    print(spent, found)  # noqa: T201 - what a soak has measured

    assert [] == faults(found)
    assert (12_031, 144_793_823) == (found["requests"], found["prompt_tokens"])
    assert found["device_hit_tokens"] + found["store_hit_tokens"] > 0.99 * found["ideal_hit_tokens"]
    assert spent < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MEMORY_KIB
