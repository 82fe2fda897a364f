"""The `stagehold` command, one file per group of verbs. It reads arguments and prints; the work lies below."""
