"""A restoration as a job: its request, its segments, its work folder and its result."""
