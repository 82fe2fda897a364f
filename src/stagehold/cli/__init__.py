"""The `stagehold` command, a file per group of verbs. It reads arguments and prints; the work lies below."""
