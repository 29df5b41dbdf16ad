#!/usr/bin/env python3
"""Tests of the request log: a server writes it, `verbatim replay-log` asks its requests again, and every altered line is found.

Everything on the CPU with the shipped model, with the standard library alone. Run after ninja: tests/unit/test_request_log.py
[--builddir DIR]
"""
import http.client
import json
import os
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, builddir.take(), "verbatim")
KEY = "a-key-that-must-not-be-logged"
BODIES = [
    ("/v1/completions", {"prompt": "add: 820+9918=", "temperature": 0, "max_tokens": 12}, 200),
    ("/v1/completions", {"prompt": ["roman: 3264 =", "add: 1+1="], "n": 2, "temperature": 1.5, "seed": 7, "max_tokens": 9,
                         "logprobs": 2}, 200),
    ("/v1/completions", {"prompt": "copy: \u00e9\"\\ =", "stream": True, "temperature": 0, "max_tokens": 6, "stop": ["9"]}, 200),
    ("/v1/completions", {"prompt": "add: 1+2=", "temperature": 0, "max_tokens": 4, "echo": True, "logprobs": 1}, 200),
    ("/v1/completions", {"prompt": "x", "max_tokens": 0.5}, 400),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "add: 2+2="}], "max_tokens": 5, "temperature": 0}, None),
    ("/tokenize", {"prompt": "not logged"}, 200),
]


class Log(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan, cls.log = cls.folder.name + "/plan", cls.folder.name + "/requests.jsonl"
        subprocess.run([PROGRAM, "plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "-o", cls.plan, "--quiet"], cwd=ROOT,
                       check=True)
        cls.statuses = cls.serve()
        with open(cls.log, encoding="utf-8") as file:
            cls.lines = [json.loads(line) for line in file]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def serve(cls, log=None, model="tests/tiny", bodies=BODIES, options=()):
        ready = tempfile.mktemp(dir=cls.folder.name)
        command = [PROGRAM, "serve", cls.plan, model, "--served-model-name", "tiny", "--port", "0", "--device", "cpu", "--quiet",
                   "--ready-file", ready, "--request-log", log or cls.log, *options]
        server = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ, VERBATIM_API_KEY=KEY))
        deadline = time.monotonic() + 60
        while not os.path.exists(ready) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with open(ready, encoding="utf-8") as file:
            port = int(file.read().strip().rsplit(":", 1)[1])
        statuses = [cls.ask(port, path, json.dumps(body).encode(), "id-%d" % i) for i, (path, body, _) in enumerate(bodies)]
        statuses.append(cls.ask(port, "/v1/completions", b'{"prompt": "\xff"}', "id-bytes"))
        server.send_signal(signal.SIGTERM)
        if server.wait(timeout=30) != 0:
            raise AssertionError("the server did not end well")
        return statuses

    @staticmethod
    def ask(port, path, body, name):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", path, body, {"Content-Type": "application/json", "Authorization": "Bearer " + KEY, "X-Request-Id": name})
        reply = connection.getresponse()
        reply.read()
        connection.close()
        return reply.status

    def replay(self, lines, code, model="tests/tiny", options=()):
        path = self.folder.name + "/altered.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        command = [PROGRAM, "replay-log", path, self.plan, model, "--device", "cpu", "--quiet", "--output-format", "json", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code in (0, 8) and done.stdout else done.stderr

    def test_a_line_has_the_body_and_no_header(self):
        expected = [status for _, _, status in BODIES]
        self.assertEqual([a for a, b in zip(self.statuses, expected) if b], [b for b in expected if b])
        logged = [i for i, (path, _, _) in enumerate(BODIES) if path.startswith("/v1/")]
        self.assertEqual([line["id"] for line in self.lines], ["id-%d" % i for i in logged] + ["id-bytes"])
        for line, i in zip(self.lines, logged):
            self.assertEqual((line["path"], line["body"], line["status"]), (BODIES[i][0], json.dumps(BODIES[i][1]), self.statuses[i]))
            self.assertEqual("results" in line, line["status"] == 200)
        self.assertIsNone(self.lines[-1]["body"])
        self.assertEqual(len(self.lines[1]["results"]), 4)
        with open(self.log, encoding="utf-8") as file:
            self.assertNotIn(KEY, file.read())
        self.assertEqual(stat.S_IMODE(os.stat(self.log).st_mode), 0o600)

    def test_the_same_requests_have_the_same_results(self):
        answered = sum("results" in line for line in self.lines)
        said = self.replay(self.lines, 0)
        self.assertEqual((said["equal"], said["differing"], said["left_out"]), (answered, 0, len(self.lines) - answered))
        said = self.replay(list(reversed(self.lines)) * 20, 0)
        self.assertEqual(said["equal"], 20 * answered)

    def altered(self, **changes):
        lines = json.loads(json.dumps(self.lines))
        lines[0].update(changes)
        return lines

    def test_an_altered_line_is_found(self):
        other = {"0": "1"}
        for part in ("chain", "request", "finish", "tokens"):
            lines = self.altered()
            result = lines[0]["results"][0]
            old = result[part]
            result[part] = old + 1 if part == "tokens" else "stop_text" if part == "finish" else other.get(old[0], "0") + old[1:]
            said = self.replay(lines, 8)
            self.assertEqual([(one["line"], one["id"], one["choice"]) for one in said["different"]], [(1, "id-0", 0)])
            self.assertTrue(said["different"][0]["what"].startswith(part))
        for changes in ({"body": self.lines[0]["body"].replace("820", "821")}, {"body": "{"}, {"results": []}):
            self.assertEqual(self.replay(self.altered(**changes), 8)["differing"], 1)

    def test_defaults_of_generation_config_are_those_of_the_server(self):
        model, log = self.folder.name + "/model", self.folder.name + "/defaults.jsonl"
        os.mkdir(model)
        for name in os.listdir(os.path.join(ROOT, "tests/tiny")):
            os.symlink(os.path.join(ROOT, "tests/tiny", name), os.path.join(model, name))
        if os.path.lexists(model + "/generation_config.json"):
            os.remove(model + "/generation_config.json")
        with open(model + "/generation_config.json", "w", encoding="utf-8") as file:
            json.dump({"do_sample": True, "temperature": 1.5, "max_new_tokens": 5, "eos_token_id": [1, 20]}, file)
        auto = ("--generation-config", "auto")
        self.serve(log, model, [("/v1/completions", {"prompt": "add: 820+9918=", "seed": 3}, 200)], auto)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(self.replay(lines, 0, model, auto)["equal"], 1)
        self.assertEqual(self.replay(lines, 8, model)["differing"], 1)  # control

    def test_what_is_no_line_is_refused(self):
        for changes in ({"path": "/health"}, {"id": ""}, {"status": "200"}, {"results": [{}]}, {"body": 1}, {"numerics_id": "x"}):
            self.assertIn("line 1", self.replay(self.altered(**changes), 4))
        self.assertIn("numerics id", self.replay(self.altered(numerics_id="0" * 32), 8))


if __name__ == "__main__":
    unittest.main()
