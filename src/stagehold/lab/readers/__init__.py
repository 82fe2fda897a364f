"""Trace readers, one module per format: each turns the lines of a file into `TraceRequest`s, and never invents one."""
