"""Write files atomically, lock them between processes, and open files of others safely."""
