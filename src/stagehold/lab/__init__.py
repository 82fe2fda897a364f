"""The lab: trace readers, replay, benches. It owns nothing of the engine and sees it as any embedder does."""
