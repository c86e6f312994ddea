"""Find the route of a request."""

from waypost.pattern import Pattern
from waypost.query import parse_query


class NoRoute(Exception):
    """No route fits: 404 for an unknown path, 405 if only the method is wrong."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Router:
    """Named routes; of those that fit, the most exact one is found, whatever the order."""

    def __init__(self):
        self.routes = {}

    def add(self, name, pattern, methods=("GET",)):
        """Add a route. Raises ValueError for a name that is taken."""
        if name in self.routes:
            raise ValueError(f"route {name!r} exists")
        self.routes[name] = (Pattern(pattern), tuple(method.upper() for method in methods))

    def find(self, method, url):
        """Name, values and query of the route. Raises NoRoute. HEAD is served by GET."""
        path, _, query = url.partition("?")
        method = method.upper()
        wanted = "GET" if method == "HEAD" else method
        status = 404
        for name, (pattern, methods) in sorted(
            self.routes.items(), key=lambda item: item[1][0].weight()
        ):
            values = pattern.match(path)
            if values is None:
                continue
            if wanted in methods:
                return name, values, parse_query(query)
            status = 405
        raise NoRoute(status)

    def url(self, name, **values):
        """The path of a route."""
        return self.routes[name][0].build(**values)
