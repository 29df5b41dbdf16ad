"""server.py - `verbatim serve` as a child of a check, and the little HTTP that checks need: it is started, asked, watched and stopped.

Owns: the plan of the shipped model, the server's command line, its end (SIGTERM must end it with status 0), its resident memory, and the
comparable form of an answer. Uses only the standard library. Must not know: who asks. Read next: proxy.py, load.py.
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL, MODEL_DIR = "tiny", os.path.join(ROOT, "tests/tiny")
READY_SECONDS, END_SECONDS = 60, 60


class Failed(Exception):
    """A fault that a check found."""


BUILDDIR = "build"  # --builddir of every check


def program():
    path = os.path.join(ROOT, BUILDDIR, "verbatim")
    if not os.path.exists(path):
        raise Failed("%s is not built; hint: ninja" % path)
    return path


def run_program(*arguments, stdin=None):
    """stdout of `verbatim ARGUMENTS`; shows its messages if it fails."""
    result = subprocess.run([program(), *arguments], cwd=ROOT, input=stdin, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failed("verbatim %s: status %d\n%s" % (arguments[0], result.returncode, result.stderr))
    return result.stdout


def make_plan(folder, more=""):
    """more: lines of the deployment after those of the shipped model."""
    path, deploy = os.path.join(folder, "tiny.plan"), os.path.join(folder, "deploy.yaml")
    with open(os.path.join(MODEL_DIR, "deploy.yaml"), encoding="utf-8") as shipped, open(deploy, "w", encoding="utf-8") as file:
        file.write(shipped.read() + more)
    run_program("plan", MODEL_DIR, "--config", deploy, "-o", path)
    return path


class Server:
    """A running server. `with Server(plan, "--no-prefix-cache") as server:` - at the end of the block it must answer SIGTERM with status 0.
    """

    def __init__(self, plan, *options, device="cpu", model_dir=MODEL_DIR):
        self.folder = tempfile.TemporaryDirectory(prefix="verbatim-serve-")
        self.ready_file = os.path.join(self.folder.name, "ready")
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        command = [program(), "serve", plan, model_dir, "--device", device, "--port", "0", "--served-model-name", MODEL,
                   "--ready-file", self.ready_file, *options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pid = self.process.pid
        try:
            self.url = self.wait_until_ready()
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def wait_until_ready(self):
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failed("the server ended with status %d:\n%s" % (self.process.returncode, self.messages()))
            if os.path.exists(self.ready_file):
                with open(self.ready_file, encoding="utf-8") as file:
                    text = file.read()
                if text.endswith("\n"):
                    return text.strip().rstrip("/")
            time.sleep(0.01)
        raise Failed("the server was not ready after %d s:\n%s" % (READY_SECONDS, self.messages()))

    def messages(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def end(self, number=signal.SIGTERM):
        """Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("the server did not end %d s after SIGTERM:\n%s" % (END_SECONDS, self.messages())) from None
        finally:
            self.log.close()
            self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind:
            sys.stderr.write("server's messages:\n" + self.messages()[-4000:])
            self.end(signal.SIGKILL)
            return
        found, status = self.messages(), self.end()
        if status != 0:
            raise Failed("the server answered SIGTERM with status %d:\n%s" % (status, found))


def ask(url, path, body=None, headers=None, timeout=120):
    """(status, headers, bytes) of one request on its own connection. body: an object or bytes; none: GET."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    try:
        connection.request("GET" if data is None else "POST", path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def answer_of(url, path, body, headers=None):
    """The object of an answer that must be 200."""
    status, _, data = ask(url, path, body, headers)
    if status != 200:
        raise Failed("%s %s: %d %s" % (path, json.dumps(body)[:300], status, data[:600].decode("utf-8", "replace")))
    return json.loads(data)


def comparable(data):
    """An answer's bytes without the parts that name the request and its time: "id" and "created" at the front of an object or event."""
    return re.sub(rb'("created":)\d+', rb"\g<1>0", re.sub(rb'(\{"id":)"[^"]*"', rb'\1""', data))


def resident_bytes(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def first_difference(a, b, around=80):
    """Where two byte strings first differ, for a message; "" if they are equal."""
    if a == b:
        return ""
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return "byte %d: %r and %r" % (at, a[max(0, at - around):at + around], b[max(0, at - around):at + around])
