#!/usr/bin/env python3
"""Tests of tools/deploy: the unit, the image and the manifests agree with each other, and their commands work.

Files: only reads them. Unit: systemd's own verdict. Server: their command, with the shipped model in place of theirs, is started, probed as
the manifests do, and stopped as a supervisor stops it. Needs PyYAML. Run after ninja: test_deploy.py [--builddir DIR] [Files|Unit|Server]
"""
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

import yaml

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
CONFIG = "/etc/verbatim/deploy.yaml"
START_SECONDS = 60


def read(path):
    with open(os.path.join(ROOT, "tools/deploy", path), encoding="utf-8") as file:
        return file.read()


def unit():
    """The values of each "Section.Key", in order."""
    found, section = {}, ""
    for line in read("verbatim.service").splitlines():
        if re.match(r"\[\w+\]$", line):
            section = line[1:-1]
        elif line and line[0] != "#":
            key, value = line.split("=", 1)
            found.setdefault(section + "." + key, []).append(value)
    return found


def image():
    """(instruction, rest) of every line of the Dockerfile, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", read("Dockerfile"), flags=re.M))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def last(name):
    return [rest for instruction, rest in image() if instruction == name][-1]


def samples(text):
    """{name: labels of its samples} of a page of metrics"""
    found = {}
    for line in text.splitlines():
        match = re.match(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ", line)
        if match:
            found.setdefault(match.group(1), set()).update(re.findall(r'(\w+)="', match.group(2) or ""))
    return found


def wrong_expressions(dashboard, found):
    """What the dashboard asks for and the metrics do not have."""
    asked = [(target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [("%s by (%s)" % re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]).groups(), "")
              for one in dashboard["templating"]["list"] if one["type"] == "query"]
    wrong = []
    for expression, legend in asked:
        names = re.findall(r"\b(?:vllm:|verbatim_)\w+", expression)
        labels = set(re.findall(r"[{,]\s*(\w+)=", expression)) | {
            one.strip() for group in re.findall(r"\bby \((.*?)\)", expression) for one in group.split(",")}
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        if not names or any(name not in found or not labels <= found[name] for name in names) or not shown <= labels:
            wrong.append(expression)
    return wrong


def manifests():
    return {one["kind"]: one for one in yaml.safe_load_all(read("kubernetes.yaml"))}


def pod():
    return manifests()["Deployment"]["spec"]["template"]["spec"]


def container():
    return pod()["containers"][0]


def map_text():
    return manifests()["ConfigMap"]["data"]["deploy.yaml"]


def configs():
    return {"deploy.yaml": yaml.safe_load(read("deploy.yaml")), "the ConfigMap": yaml.safe_load(map_text())}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s?", str(text)).group(1))


def health_command(port):
    words = json.loads(re.search(r"CMD (\[.*\])$", last("HEALTHCHECK")).group(1))
    return [word.replace("/8000 ", "/%d " % port) for word in words]


def flat(mapping):
    """Keys of mappings within it, such as speculative-config.method, as --dump-config shows them."""
    inner = {key: {"%s.%s" % (key, name): value for name, value in of.items()} for key, of in mapping.items() if isinstance(of, dict)}
    return {name: value for key, of in mapping.items() for name, value in inner.get(key, {key: of}).items()}


class Files(unittest.TestCase):
    def test_all_run_the_same_command(self):
        [command] = unit()["Service.ExecStart"]
        entry, words = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
        self.assertEqual(shlex.split(command), entry + words)
        self.assertEqual(container()["args"], words)
        self.assertNotIn("command", container())
        self.assertEqual(words, ["serve", "--config", CONFIG])

    def test_ports_agree(self):
        ports = {config["port"] for config in configs().values()}
        [published] = container()["ports"]
        ports |= {published["containerPort"], int(last("EXPOSE")), int(re.search(r"127\.0\.0\.1/(\d+) ", last("HEALTHCHECK")).group(1))}
        ports |= {int(re.search(r"-p \d+:(\d+) ", read("Dockerfile")).group(1))}
        ports |= {int(manifests()["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"])}
        self.assertEqual(ports, {8000})
        self.assertEqual([port["targetPort"] for port in manifests()["Service"]["spec"]["ports"]], [published["name"]])
        self.assertEqual({config["host"] for config in configs().values()}, {"0.0.0.0"})

    def test_probes_ask_for_health(self):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(container()[name]["httpGet"], {"path": "/health", "port": container()["ports"][0]["name"]}, name)
        self.assertIn("GET /health ", last("HEALTHCHECK"))

    def test_supervisors_wait_longer_than_the_server_drains(self):
        drain = {config["drain-timeout"] for config in configs().values()}
        self.assertEqual(len(drain), 1)
        before = container()["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.assertGreater(seconds(unit()["Service.TimeoutStopSec"][0]), max(drain) + 10)
        self.assertGreater(pod()["terminationGracePeriodSeconds"], before + max(drain) + 10)
        self.assertGreater(int(re.search(r"--stop-timeout (\d+)", read("Dockerfile")).group(1)), max(drain) + 10)
        self.assertEqual((unit()["Service.KillSignal"], last("STOPSIGNAL")), (["SIGTERM"], "SIGTERM"))

    def test_what_is_written_lies_where_it_may_be(self):
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container()["volumeMounts"]}
        self.assertEqual({mount["name"] for mount in container()["volumeMounts"]}, {volume["name"] for volume in pod()["volumes"]})
        state, cache = "/var/lib/" + unit()["Service.StateDirectory"][0], "/var/cache/" + unit()["Service.CacheDirectory"][0]
        self.assertEqual(json.loads(last("VOLUME")), [state, cache])
        self.assertIn("%s %s" % (state, cache), last("RUN"))
        for name, config in configs().items():
            self.assertEqual(os.path.dirname(config["plan"]), state, name)
            self.assertEqual(config["cache-dir"], cache, name)
            self.assertEqual([mounts[path] for path in (state, cache)], [False, False])
            self.assertTrue(mounts[config["model"]] and mounts[os.path.dirname(CONFIG)])
            self.assertIn(":%s:ro " % config["model"], read("Dockerfile"))

    def test_nobody_is_root(self):
        user = int(last("USER").split(":")[0])
        self.assertGreater(user, 0)
        self.assertEqual(pod()["securityContext"]["runAsUser"], user)
        self.assertTrue(pod()["securityContext"]["runAsNonRoot"])
        self.assertIn("--uid %d " % user, last("RUN"))
        self.assertEqual((unit()["Service.DynamicUser"], unit()["Service.CapabilityBoundingSet"]), (["yes"], [""]))

    def test_the_key_comes_from_the_environment(self):
        self.assertIn("VERBATIM_API_KEY", [variable["name"] for variable in container()["env"]])
        self.assertEqual(unit()["Service.EnvironmentFile"], ["/etc/verbatim/verbatim.env"])
        self.assertIn("--env-file", read("Dockerfile"))
        for config in configs().values():
            self.assertNotIn("api-key", config)

    def test_a_wrong_file_is_not_started_again_and_again(self):
        codes = {int(code) for code in unit()["Service.RestartPreventExitStatus"][0].split()}
        self.assertEqual(codes, {2, 3, 4, 5, 6, 8})  # without 7, the GPU's

    def test_the_image_is_made_of_what_is_there(self):
        for sources in [rest.split()[:-1] for instruction, rest in image() if instruction == "COPY" and "--from" not in rest]:
            for source in sources:
                self.assertTrue(os.path.exists(os.path.join(ROOT, source)), source)
        self.assertIn("ninja install", "".join(rest for _, rest in image()))

    def test_the_labels_meet(self):
        labels = manifests()["Deployment"]["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(manifests()["Deployment"]["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(manifests()["Service"]["spec"]["selector"], labels)
        self.assertEqual(container()["resources"]["limits"]["nvidia.com/gpu"], 1)


class Unit(unittest.TestCase):
    def test_systemd_understands_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/verbatim.service"
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub("^Documentation=.*\n", "", read("verbatim.service"), flags=re.M)
                           .replace("/usr/local/bin/verbatim", os.path.join(ROOT, BUILDDIR, "verbatim")))
            result = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))


class Server(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def written(self, text, **changes):
        """The file with other values and under another name; a missing key is added."""
        for key, value in changes.items():
            key = key.replace("_", "-")
            line = "%s: %s" % (key, json.dumps(value))
            text, count = re.subn(r"^%s:.*$" % key, line, text, flags=re.M)
            text += "" if count else line + "\n"
        path = self.folder.name + "/deploy.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def here(self, text):
        return self.written(text, model=os.path.join(ROOT, "tests/tiny"), plan=self.folder.name + "/plan", port=0, device="cpu",
                            cache_dir=self.folder.name, ready_file=self.folder.name + "/url", max_model_len=1024, host="127.0.0.1")

    def command(self, path):
        words = [word.replace(CONFIG, path) for word in json.loads(last("CMD"))]
        return [os.path.join(ROOT, BUILDDIR, "verbatim"), *words]

    def test_every_option_is_one_of_serve(self):
        told = subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), "serve", "--help"], capture_output=True, text=True).stdout
        known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told))
        self.assertLessEqual({word for word in json.loads(last("CMD")) if word.startswith("--")}, known)

    def test_the_files_are_accepted(self):
        """The files as they are, and with every commented-out key enabled."""
        for text in (read("deploy.yaml"), re.sub(r"^# (?=[a-z-]+: )", "", read("deploy.yaml"), flags=re.M), map_text()):
            result = subprocess.run([*self.command(self.written(text)), "--dump-config"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            dumped = yaml.safe_load(result.stdout)
            for key, value in flat(yaml.safe_load(text)).items():
                told = dumped[key][0] if isinstance(dumped[key], list) and not isinstance(value, list) else dumped[key]
                self.assertEqual(str(told), str(value), key)
        self.assertGreater(len(re.findall(r"^# [a-z-]+: ", read("deploy.yaml"), re.M)), 10)

    def test_a_wrong_key_is_refused(self):
        result = subprocess.run(self.command(self.written(read("deploy.yaml"), prot=1)), capture_output=True, text=True)
        self.assertIn(result.returncode, (2, 4), result.stderr)
        self.assertIn("port", result.stderr)

    def start(self, path):
        server = subprocess.Popen(self.command(path), env=dict(os.environ, VERBATIM_API_KEY="secret"), stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(lambda: server.poll() is None and (server.kill(), server.wait()))
        deadline = time.monotonic() + START_SECONDS
        while not os.path.exists(self.folder.name + "/url") and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertIsNone(server.poll(), server.stderr.read() if server.poll() is not None else "")
        with open(self.folder.name + "/url", encoding="utf-8") as file:
            return server, file.read().strip()

    def test_the_command_serves_and_ends(self):
        for name, text in (("deploy.yaml", read("deploy.yaml")), ("the ConfigMap", map_text())):
            server, url = self.start(self.here(text))
            port = int(url.rstrip("/").rsplit(":", 1)[1])
            with urllib.request.urlopen(url + container()["readinessProbe"]["httpGet"]["path"], timeout=10) as reply:
                self.assertEqual(reply.status, 200, name)
            self.assertEqual(subprocess.run(health_command(port), timeout=20).returncode, 0, name)
            body = json.dumps({"model": "model", "prompt": "add: 86+72=", "max_tokens": 9}).encode()
            headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            request = urllib.request.Request(url + "/v1/completions", body, headers)
            with urllib.request.urlopen(request, timeout=30) as reply:
                self.assertEqual(json.load(reply)["choices"][0]["text"].strip(), "158", name)
            with urllib.request.urlopen(urllib.request.Request(url + "/metrics", headers=headers), timeout=10) as reply:
                self.check_dashboard(samples(reply.read().decode()))
            server.terminate()
            self.assertEqual(server.wait(timeout=30), 0, name)
            self.assertNotEqual(subprocess.run(health_command(port), stderr=subprocess.DEVNULL, timeout=20).returncode, 0, name)
            os.remove(self.folder.name + "/url")

    def check_dashboard(self, found):
        dashboard = json.loads(read("grafana.json"))
        self.assertEqual(wrong_expressions(dashboard, found), [])
        self.assertGreater(sum(len(panel["targets"]) for panel in dashboard["panels"]), 25)
        for old, new in (("vllm:num_requests_running", "vllm:num_requests_runing"), ("by (code)", "by (status)"), ("{{code}}", "{{cod}}")):
            self.assertTrue(wrong_expressions(json.loads(read("grafana.json").replace(old, new)), found), new)

    def test_an_end_while_it_starts_is_a_clean_one(self):
        """At any moment of the start it ends by the signal itself, by the code that the unit names, or by 0."""
        clean = {0, -signal.SIGTERM} | {int(code) for code in unit()["Service.SuccessExitStatus"][0].split()}
        path = self.here(read("deploy.yaml"))
        for moment in range(8):
            server = subprocess.Popen(self.command(path), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.02 * moment)
            server.terminate()
            self.assertIn(server.wait(timeout=30), clean, moment)


if __name__ == "__main__":
    unittest.main()
