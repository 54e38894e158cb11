"""A restoration as a job: its request, its encoder, its segments, its work folder and its result."""
