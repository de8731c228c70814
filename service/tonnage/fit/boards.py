"""GPU names of a request: one that stands for several boards lets all of them take part, and the answer says so."""

from tonnage.catalog import Catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.namesakes import boards_of
from tonnage.spec.facts import Gpu
from tonnage.spec.fit import FitRequest
from tonnage.spec.report import Assumption


def boards(catalog: Catalog, name: str, pointer: str) -> tuple[Gpu, ...]:
    """
    Boards that a name of the offer lets in.

    Args:
        catalog: The facts.
        name: Id, alias, loose name, instance type or slice.
        pointer: JSON pointer of the field it stands in.

    Returns:
        One; of a loose name all that carry it, whatever their memory and form.

    Raises:
        UnknownName: It names none.
    """
    taken = find_gpu(catalog, name, pointer)[0]
    return boards_of(catalog, name) or (taken,)


def assumptions(catalog: Catalog, request: FitRequest) -> tuple[Assumption, ...]:
    """
    What loose names were taken for.

    Args:
        catalog: The facts.
        request: Offer, wish and what runs today.

    Returns:
        One assumption per loose name: in the offer every board is judged, today's run is taken for one.
    """
    wanted = [(name, f"/offer/gpus/{n}") for n, name in enumerate(request.offer.gpus or ())]
    if request.placement.gpu is not None:
        wanted.append((request.placement.gpu, "/placement/gpu"))
    found = []
    for name, pointer in wanted:
        ids = sorted(gpu.id for gpu in boards(catalog, name, pointer))
        if len(ids) > 1:
            field = pointer.strip("/").rstrip("/0123456789").replace("/", ".")
            found.append(Assumption(field, ids, f"{name!r} names several boards; packages of each are judged"))
    today = None if request.current is None else request.current.gpu
    if today is not None and len(boards(catalog, today, "/current/gpu")) > 1:
        taken = find_gpu(catalog, today, "/current/gpu")[0]
        others = ", ".join(sorted(g.id for g in boards_of(catalog, today) if g.id != taken.id))
        why = f"{today!r} names several boards; {taken.name} is taken, not {others}: state the board that runs"
        found.append(Assumption("current.gpu", taken.id, why))
    return tuple(found)
