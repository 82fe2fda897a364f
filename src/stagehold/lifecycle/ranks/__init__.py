"""Who must agree before facts become events."""
