"""The table check: every declared world searched, and one report.

`explore` searches one world; `table_check` all of them, beside the static checks of the declarations and the
comparison with the oracle. Nothing here prints or writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stagehold.machines.checks import check
from stagehold.machines.declared import MACHINES, declaration_hash, rows_of
from stagehold.machines.explorer.fairness import Fairness
from stagehold.machines.explorer.product import Product
from stagehold.machines.explorer.results import WorldResult, count_leaks, counterexample
from stagehold.machines.explorer.search import Search
from stagehold.machines.explorer.steps import Fault
from stagehold.machines.explorer.tables import DECLARED
from stagehold.machines.oracle import compare_all
from stagehold.machines.rules_paths import step_bound
from stagehold.specs.declare import MachineSpec
from stagehold.specs.limits import Limits
from stagehold.specs.worlds import DEFAULT_WORLDS, FULL_WORLDS, World

Specs = Mapping[str, MachineSpec]


def explore(world: World, specs: Specs | None = None, *, rules: type[Product] = Product) -> WorldResult:
    """Every situation of `world` under the declared machines, or under `specs` in place of those of the same name.

    `rules` are the rules of the world. ValueError where a declaration uses a resource or an effect that the
    explorer does not know.
    """
    product = rules(world, {**DECLARED, **(specs or {})})
    graph = Search(product).run()
    lasting = Fairness(graph, product.labels, product.bits).judge()
    broken = dict.fromkeys(found.sentence for found in graph.problems if found.fault is Fault.INVARIANT)
    return WorldResult(
        name=world.name,
        states=len(graph.situations),
        moves=len(graph.targets),
        deadlocks=len(lasting.deadlocks),
        leaks=count_leaks(graph),
        invariant_breaches=tuple(broken),
        unfair_cycles=len(lasting.unfair_cycles),
        cannot_end=len(lasting.cannot_end),
        cyclic_parts=lasting.cyclic_parts,
        repeated_moves=tuple(dict.fromkeys(product.labels.kind(label) for label in lasting.repeated)),
        rows_taken=tuple(text for text, taken in zip(product.row_texts, product.taken, strict=True) if taken),
        counterexample=counterexample(graph, product.labels, lasting),
    )


def table_check(
    *, full: bool = False, specs: Specs | None = None, progress: Callable[[WorldResult], None] | None = None
) -> dict[str, Any]:
    """Everything that is proved about the declared machines, as plain values that JSON can hold.

    Searches the default worlds, with `full` those of an hour as well; `progress` hears of each world that is done.
    `specs` stand in place of the declared machines of the same name. `holds` says whether nothing was found, and
    `declaration` is the hash of what was searched.
    """
    machines = [(specs or {}).get(spec.name, spec) for spec in MACHINES]
    worlds = (*DEFAULT_WORLDS, *FULL_WORLDS) if full else DEFAULT_WORLDS
    results = []
    for world in worlds:
        results.append(explore(world, specs))
        if progress is not None:
            progress(results[-1])
    report = {"machines": [machine_report(spec, machines) for spec in machines]}
    report |= oracle_report(machines) | product_report(results, specs)
    problems = any(machine["problems"] for machine in report["machines"])
    holds = not problems and not report["oracle_differences"] and all(result.holds for result in results)
    return {"holds": holds, "declaration": declaration_hash(tuple(machines)).hex(), **report}


def machine_report(spec: MachineSpec, machines: Sequence[MachineSpec]) -> dict[str, Any]:
    """The static side of one machine. `step_bound` is None for one that lives as long as the engine."""
    bound = step_bound(spec, Limits())
    return {
        "name": spec.name,
        "states": len(spec.states),
        "rows": len(rows_of(spec)),
        "step_bound": bound.steps if bound is not None else None,
        "problems": [str(problem) for problem in check(spec, machines)],
    }


def oracle_report(machines: Sequence[MachineSpec]) -> dict[str, Any]:
    """How many cells the compiled steps were compared in with `transitions`, and how many differed."""
    comparisons = compare_all(machines)
    return {
        "oracle_cells": sum(comparison.cells for comparison in comparisons),
        "oracle_differences": sum(len(comparison.differences) for comparison in comparisons),
    }


def product_report(results: Sequence[WorldResult], specs: Specs | None) -> dict[str, Any]:
    """The figures of all worlds together, of each world, and the rows that none of them took."""
    declared = Product(DEFAULT_WORLDS[0], {**DECLARED, **(specs or {})}).row_texts
    taken = {row for result in results for row in result.rows_taken}
    return {
        "product_states": sum(result.states for result in results),
        "product_moves": sum(result.moves for result in results),
        "deadlocks": sum(result.deadlocks for result in results),
        "leaks": sum(result.leaks for result in results),
        "invariant_breaches": sum(len(result.invariant_breaches) for result in results),
        "unfair_cycles": sum(result.unfair_cycles for result in results),
        "cannot_end": sum(result.cannot_end for result in results),
        "product_rows": len(declared),
        "rows_never_taken": [row for row in declared if row not in taken],
        "worlds": [world_report(result) for result in results],
    }


def world_report(result: WorldResult) -> dict[str, Any]:
    """The figures of one world; its rows are only counted."""
    report = asdict(result)
    return {**report, "rows_taken": len(result.rows_taken)}
