"""What may happen: declarations as data. Imports nothing of stagehold but itself and runs nothing."""
