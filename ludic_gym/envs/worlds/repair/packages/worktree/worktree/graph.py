"""A graph of tasks."""


class CycleError(Exception):
    """Tasks that wait for each other; `tasks` begins and ends with the same one."""

    def __init__(self, tasks):
        super().__init__(" -> ".join(tasks))
        self.tasks = tasks


class Graph:
    """Tasks with hours, and the tasks that each needs to be done before."""

    def __init__(self):
        self.hours = {}
        self.needs = {}

    def add(self, task, hours=1, needs=()):
        """Add a task; tasks that it needs may be added later."""
        if task in self.hours:
            raise ValueError(f"task {task!r} exists")
        self.hours[task] = hours
        self.needs[task] = tuple(dict.fromkeys(needs))

    def missing(self):
        """Names that are needed but were never added, sorted."""
        return sorted({need for needs in self.needs.values() for need in needs} - set(self.hours))

    def order(self):
        """The tasks in an order in which each comes after its needs; among those, as added.

        Raises CycleError.
        """
        done = []
        state = {}

        def visit(task, path):
            if state.get(task) == "done":
                return
            if state.get(task) == "open":
                raise CycleError([*path[path.index(task) :], task])
            state[task] = "open"
            for need in self.needs.get(task, ()):
                visit(need, [*path, task])
            state[task] = "done"
            done.append(task)

        for task in self.hours:
            visit(task, [])
        return done

    def all_needs(self, task):
        """Everything that a task needs, directly or not, sorted."""
        found = set()
        open_tasks = list(self.needs[task])
        while open_tasks:
            need = open_tasks.pop()
            if need not in found:
                found.add(need)
                open_tasks.extend(self.needs.get(need, ()))
        return sorted(found)

    def users(self, task):
        """Tasks that need this one directly, sorted."""
        return sorted(name for name, needs in self.needs.items() if task in needs)
