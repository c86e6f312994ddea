"""Games for one or two players, one file each."""
