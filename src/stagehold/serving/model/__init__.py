"""Real models behind the bundled scheduler: weights, layouts of their KV, and runners whose KV lies in paged pools."""
