"""Any exception as the problem a caller reads."""

from tonnage.api import problems
from tonnage.errors import SizingError


def as_problem(error: Exception) -> problems.ProblemError:
    """The problem that any exception is; what nobody foresaw is a 500 without its text."""
    if isinstance(error, problems.ProblemError):
        return error
    if isinstance(error, SizingError):
        return problems.of_sizing_error(error)
    if isinstance(error, TimeoutError):
        return problems.ProblemError(
            problems.DEADLINE,
            "the request did not finish in time",
            headers=[(b"retry-after", b"1"), (b"connection", b"close")],
        )
    status = getattr(error, "status_code", 500)
    kind = problems.BY_STATUS.get(status, problems.INTERNAL)
    if kind is problems.INTERNAL:
        return problems.ProblemError(kind, "an error that nobody foresaw; the log has it under the request id")
    return problems.ProblemError(kind, _detail(error, kind), headers=_allow(error))


def _detail(error: Exception, kind: problems.Kind) -> str:
    if kind is problems.METHOD_NOT_ALLOWED:
        return "see the Allow header for the methods this path knows"
    if kind is problems.NOT_FOUND:
        return "no such path; GET /openapi.json lists them"
    return str(getattr(error, "detail", "")) or kind.title


def _allow(error: Exception) -> list[tuple[bytes, bytes]]:
    """Allow header of a 405: what the framework says, with HEAD where GET is."""
    given = {name.lower(): value for name, value in (getattr(error, "headers", None) or {}).items()}
    if "allow" not in given:
        return []
    methods = {method.strip() for method in given["allow"].split(",")}
    if "GET" in methods:
        methods.add("HEAD")
    return [(b"allow", ", ".join(sorted(methods)).encode())]
