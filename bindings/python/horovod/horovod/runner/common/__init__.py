"""Tools of the launcher, at the paths where scripts look for them."""
