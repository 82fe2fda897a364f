"""The bundled scheduler and its runner of known bytes: an embedder like any other, never a part of the engine."""
