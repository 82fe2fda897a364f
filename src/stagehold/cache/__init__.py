"""What decisions look at: tree, components, pools, staging, keys, beliefs and stores. It decides nothing itself."""
