"""What was seen: the last frames in memory, the archive on disk, and queries over it."""
