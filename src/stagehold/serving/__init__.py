"""The bundled scheduler and its runner of known bytes: an embedder like any other, no part of the engine."""
