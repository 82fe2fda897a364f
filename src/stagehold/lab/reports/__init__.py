"""One page about one or several runs: what they hit and lost, how long people waited, what was moved, and when."""
