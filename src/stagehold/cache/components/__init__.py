"""One file per kind of KV that a model keeps; no component is named anywhere else."""
