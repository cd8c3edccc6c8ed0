"""What the packages of all frameworks share, at the paths where scripts look for it."""
