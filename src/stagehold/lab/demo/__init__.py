"""The demo: a real model serves real agent prompts, cold, warm, and after a restart from the store."""
