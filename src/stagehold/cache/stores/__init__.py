"""Stores: where pages live beyond host memory, all of them behind one asynchronous protocol."""
