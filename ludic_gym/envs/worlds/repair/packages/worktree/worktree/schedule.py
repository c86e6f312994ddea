"""Times of tasks that run at once where their needs allow it."""


def finish_times(graph, start=0):
    """The hour at which each task ends if any number of tasks run at once."""
    times = {}
    for task in graph.order():
        begin = max((times[need] for need in graph.needs[task]), default=start)
        times[task] = begin + graph.hours[task]
    return times


def critical_path(graph):
    """The tasks that decide when all is done, from the first to the last; [] without tasks."""
    times = finish_times(graph)
    if not times:
        return []
    task = max(times, key=times.get)
    path = [task]
    while graph.needs[task]:
        task = max(graph.needs[task], key=times.get)
        path.append(task)
    return path[::-1]


def waves(graph, workers=None):
    """Groups of tasks that can be done at once, sorted by name; at most `workers` in a group."""
    left = dict(graph.needs)
    done = set()
    groups = []
    while left:
        ready = sorted(task for task, needs in left.items() if done.issuperset(needs))
        if not ready:
            raise ValueError(f"cannot begin {sorted(left)}")
        group = ready if workers is None else ready[:workers]
        groups.append(group)
        done.update(group)
        for task in group:
            del left[task]
    return groups
