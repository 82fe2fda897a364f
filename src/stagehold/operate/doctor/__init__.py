"""`stagehold doctor`: looks at the machine, the configuration and the store before an engine does.

It changes nothing but for a few test pages that it leaves in the store.
"""
