"""What users run to test their own: the seeded World, rule machines, faults, and the stores' conformance kit."""
