"""Lets forebay stand beside the peers of a benchmark whose workloads are modules w_NAME with a function for
each loader: with this folder and the one above on PYTHONPATH each of them has a function `forebay`, too.

    PYTHONPATH=bench/beside:bench python BENCH.py --workload lidar15 --loader forebay --config '{"w": 2}'

Python imports a module of this name when it starts, so BENCH.py needs no change.
"""
import importlib.abc
import importlib.machinery
import sys

PREFIX = "w_"


class Beside(importlib.abc.MetaPathFinder):
    """Finds a workload where it is, and adds the function when it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(PREFIX) or name == "w_forebay":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            if not hasattr(module, "forebay"):
                module.forebay = lambda cfg: entry(name)(cfg)

        spec.loader.exec_module = exec_module
        return spec


def entry(name):
    import w_forebay
    return w_forebay.WORKLOADS[name.removeprefix(PREFIX)]


sys.meta_path.insert(0, Beside())
