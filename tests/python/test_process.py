"""Threads, forks, signals and the end of the interpreter."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import textwrap

import pytest

import forebay
from known import SCANS


def test_one_iterator_in_several_threads_gives_each_batch_once(config):
    with forebay.Loader(config, batch_size=1) as loader:
        for _ in range(20):
            iterator, taken = iter(loader), []

            def take():
                for batch in iterator:
                    taken.append(int(batch["index"][0]))

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(taken) == list(range(SCANS))


def test_close_in_another_thread_ends_whoever_waits(config):
    for _ in range(10):
        loader, met = forebay.Loader(config), []

        def take():
            try:
                while True:
                    for _ in loader:
                        pass
            except forebay.StoppedError as error:
                met.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        loader.close()
        thread.join(5)
        assert not thread.is_alive() and len(met) == 1


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(config):
    with forebay.Loader(config) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            said = "nothing was raised"
            try:
                next(iterator)
            except forebay.ForkedError as error:
                said = str(error)
            except BaseException as error:  # noqa: BLE001
                said = repr(error)
            loader.close()
            del kept
            os.write(writer, said.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            assert "forked" in file.read()
        assert os.waitpid(child, 0)[1] == 0
        assert kept["index"].tolist() == [0, 1]
        assert sum(1 for _ in iterator) == SCANS // 2 - 1


def test_pickling_says_what_to_do_instead(config):
    import pickle

    with forebay.Loader(config) as loader, pytest.raises(TypeError, match="configuration"):
        pickle.dumps(loader)


LOOP = """
    import json, signal, sys, time, forebay
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    loader = forebay.Loader(json.loads(sys.argv[1]), transform={transform})
    print("ready", flush=True)
    while True:
        for batch in loader:
            time.sleep(0.001)
"""


@pytest.mark.parametrize("transform", ["None", "lambda batch: batch"])
def test_ctrl_c_ends_at_once(config, transform):
    code = textwrap.dedent(LOOP.format(transform=transform))
    child = subprocess.Popen([sys.executable, "-c", code, json.dumps(config)], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=10)
    assert time.monotonic() - began < 2
    assert said.strip().endswith("KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


EXIT = """
    import json, sys, threading, forebay
    loader = forebay.Loader(json.loads(sys.argv[1]), as_="dlpack",
                            transform=(lambda batch: batch) if "transform" in sys.argv[2] else None)
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(int(sys.argv[3]))]
    capsules = [batch["points"].__dlpack__() for batch in kept]
    if "thread" in sys.argv[2]:
        def take():
            while True:
                for batch in loader: pass
        threading.Thread(target=take, daemon=True).start()
    if "cycle" in sys.argv[2]:
        cycle = [loader, iterator, kept]; cycle.append(cycle)
    if "raise" in sys.argv[2]:
        sys.exit(0)
"""


@pytest.mark.parametrize("how", ["plain", "raise", "thread", "transform", "transform thread",
                                 "transform cycle raise"])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_interpreter_may_end_at_any_moment(config, how, kept):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(EXIT), json.dumps(config), how,
                           str(kept)], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_loader_that_is_dropped_is_closed(config):
    before = len(os.listdir("/proc/self/task"))
    for transform in (None, lambda batch: batch):
        for _ in range(3):
            loader = forebay.Loader(config, transform=transform)
            next(iter(loader))
            del loader
    end = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < end:
        time.sleep(0.001)
    assert len(os.listdir("/proc/self/task")) <= before


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers are slow")
def test_import_is_quick_and_brings_no_numpy(python):
    code = """
        import json, sys, time
        began = time.process_time()
        import forebay
        print(json.dumps([time.process_time() - began, "numpy" in sys.modules]))
    """
    times, numpies = zip(*(python(code) for _ in range(3)))
    assert not any(numpies)
    assert min(times) < 0.05
