"""The tick and what it drives; `stagehold.Engine` is its face. Nothing here reads a clock or draws a number."""
