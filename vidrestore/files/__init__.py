"""Files written whole or not at all, and locks that hold between processes."""
