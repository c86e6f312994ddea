"""Terminal: the machine that runs commands, and the tasks."""
