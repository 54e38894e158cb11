"""What a user can ask for: tasks, families of networks, options, and the checks of settings in files."""
