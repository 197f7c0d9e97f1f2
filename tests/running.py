"""A loader that runs in the background: started, waited for, looked at, ended."""
import json
import os
import signal
import subprocess
import time


class Running:
    """forebay run in the background; it is in `forebay top` when this returns (patience 0: perhaps
    not yet)."""

    def __init__(self, program, folder, *arguments, name="train", patience=60, **more):
        self.program, self.folder = program, folder
        self.env = {**os.environ, "FOREBAY_RUN_DIR": str(folder / "run"),
                    "XDG_CACHE_HOME": str(folder / "cache")}
        command = [program, "run", "--set", f"name={name}", *arguments]
        self.errors = open(folder / f"stderr-{name}", "w+")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=self.env, **more)
        self.pid = self.process.pid
        end = time.monotonic() + patience
        while patience and not self.look():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, "it never showed itself"
            time.sleep(0.02)

    def forebay(self, *arguments, check=True, **more):
        done = subprocess.run([self.program, *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=self.env, timeout=60, **more)
        assert not check or done.returncode == 0, done.stderr
        return done

    def look(self):
        """What top says of it now, or None."""
        loaders = json.loads(self.forebay("top", "--json").stdout)["loaders"]
        return next((loader for loader in loaders if loader["pid"] == self.pid), None)

    def until(self, what, patience=60):
        """Look until `what` is true of it; the last look."""
        end = time.monotonic() + patience
        while True:
            now = self.look()
            assert now, "it is gone: " + self.said()
            if what(now):
                return now
            assert time.monotonic() < end, f"not within {patience} s: {now}"
            time.sleep(0.05)

    def said(self):
        self.errors.flush()
        with open(self.errors.name) as file:
            return file.read()

    def end(self, number=signal.SIGKILL):
        """Kill it; or, with another signal, let it end: its output."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.errors.close()
