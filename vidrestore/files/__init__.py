"""Write files atomically, lock them between processes, open files of others safely, and edit headers."""
