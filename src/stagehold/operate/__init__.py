"""What people who operate a server look at. It reads counters and logs, and changes nothing."""
