"""Element of an OR-Set: it is present while it has an add that no remove covers.

One add slot and one remove slot for each replica, each with a stamp, instead of a set of tags: a replica's newer add
replaces its older one, and a remove copies the add stamps that it has observed. Source: RR-7506, specification 15, in
the optimised form of Bieniusa et al., "An optimized conflict-free replicated set" (INRIA RR-8083, 2012), with a stamp
for the version-vector entry. Removes are kept: they make a late, old add harmless.
"""

from collections.abc import Mapping
from itertools import chain

Slots = dict[str, str]


def join(*states: Mapping[str, str]) -> Slots:
    """Return per replica the largest stamp. The same function joins add slots and remove slots."""
    joined: Slots = {}
    for replica, stamp in chain.from_iterable(each.items() for each in states):
        if stamp > joined.get(replica, ""):
            joined[replica] = stamp
    return joined


def live(add: Mapping[str, str], rem: Mapping[str, str]) -> Slots:
    """Return the adds that no remove covers: the element is present while there is one."""
    return {replica: stamp for replica, stamp in add.items() if stamp > rem.get(replica, "")}


def removal(add: Mapping[str, str], rem: Mapping[str, str]) -> Slots:
    """Return the delta of an observed remove: the adds that it has seen, copied. A concurrent add must survive."""
    return live(add, rem)
