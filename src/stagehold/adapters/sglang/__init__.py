"""A HiCache storage backend for SGLang on the stores of stagehold.

`plugin` is what SGLang loads; it needs SGLang. `backend` is all that it does, by SGLang's interface, and needs nothing
but what SGLang hands over. `pages` says how the pages of a host pool lie in memory and what they are called, `prefixes`
how far a prefix can be restored, `options` what the operator may set.
"""
