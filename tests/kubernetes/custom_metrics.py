#!/usr/bin/env python3
"""Serves the custom metrics API (custom.metrics.k8s.io/v1beta2) from the numbers of a Prometheus.

    custom_metrics.py ADDRESS:PORT PROMETHEUS RULES CLUSTER

The rules are those of the chart prometheus-adapter, of which this is the part that an autoscaler
asks for: metrics of pods. CLUSTER is the folder of lab/k8s/cluster, with the keys of an admin.

At /targets it lists, for Prometheus, what the chart's PodMonitor selects: Debian's Prometheus
cannot ask the API server.
"""

import http.server
import json
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

GROUP = "custom.metrics.k8s.io/v1beta2"
RULE = re.compile(r"seriesQuery: '(.*)'\n.*\n\s+name: \{ as: (\w+) \}\n\s+metricsQuery: '(.*)'")


def read_json(url, context=None):
    """Reads an object of an HTTP server."""
    with urllib.request.urlopen(url, context=context, timeout=5) as response:
        return json.load(response)


class Source:
    """Prometheus, the rules, and the API server that knows the pods."""

    def __init__(self, prometheus, rules, cluster):
        self.prometheus = prometheus
        found = RULE.findall(Path(rules).read_text())
        self.rules = {name: (series, query) for series, name, query in found}
        pki = Path(cluster) / "pki"
        self.keys = ssl.create_default_context(cafile=pki / "ca.crt")
        self.keys.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def objects(self, path, selector):
        """Returns the pods that a selector matches."""
        query = urllib.parse.urlencode({"labelSelector": selector})
        return read_json(f"https://10.96.0.1/api/v1/{path}?{query}", self.keys)["items"]

    def pods(self, namespace, selector):
        """Returns the names of the pods that a selector matches."""
        pods = self.objects(f"namespaces/{namespace}/pods", selector)
        return [pod["metadata"]["name"] for pod in pods]

    def targets(self):
        """Returns the addresses of all metrics pages, with the labels of their pods."""
        found = []
        for pod in self.objects("pods", "fastlane.dev/metrics=true"):
            ports = [port for container in pod["spec"]["containers"]
                     for port in container.get("ports", [])]
            labels = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
            address = pod["status"].get("podIP")
            found += [{"targets": [f"{address}:{port['containerPort']}"], "labels": labels}
                      for port in ports
                      if address and port.get("name") in ("metrics", "lane-metrics")]
        return found

    def values(self, namespace, metric, pods):
        """Returns the value of a metric for each pod that has it."""
        series, query = self.rules[metric]
        names = "|".join(pods)
        query = query.replace("<<.Series>>", series).replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", f'namespace="{namespace}",pod=~"{names}"')
        query = urllib.parse.urlencode({"query": query})
        found = read_json(f"{self.prometheus}/api/v1/query?{query}")["data"]["result"]
        return {it["metric"]["pod"]: float(it["value"][1]) for it in found}


class Handler(http.server.BaseHTTPRequestHandler):
    """Requests of the API server."""

    protocol_version = "HTTP/1.1"
    source = None

    def do_GET(self):
        """Responds to one request."""
        url = urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(url.path).strip("/").split("/")
        selector = urllib.parse.parse_qs(url.query).get("labelSelector", [""])[0]
        if path == ["targets"]:
            self.reply(200, self.source.targets())
        elif "/".join(path[1:]) == GROUP:
            self.reply(200, self.resources())
        elif len(path) == 8 and path[5:7] == ["pods", "*"] and path[7] in self.source.rules:
            self.reply(200, self.metrics(path[4], path[7], selector))
        else:
            self.reply(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                             "code": 404})

    def resources(self):
        """Returns the metrics that there are."""
        resources = [{"name": f"pods/{name}", "singularName": "", "namespaced": True,
                      "kind": "MetricValueList", "verbs": ["get"]} for name in self.source.rules]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP,
                "resources": resources}

    def metrics(self, namespace, metric, selector):
        """Returns a metric of all pods that a selector matches."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = self.source.values(namespace, metric, self.source.pods(namespace, selector))
        items = [{"describedObject": {"kind": "Pod", "apiVersion": "/v1", "namespace": namespace,
                                      "name": pod},
                  "metric": {"name": metric}, "timestamp": now,
                  "value": f"{round(1000 * value)}m"} for pod, value in values.items()]
        return {"kind": "MetricValueList", "apiVersion": GROUP, "metadata": {}, "items": items}

    def reply(self, status, content):
        """Sends an object."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    """Reads the command line and serves."""
    listen, prometheus, rules, cluster = sys.argv[1:]
    Handler.source = Source(prometheus, rules, cluster)
    address, port = listen.split(":")
    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/key", f"{folder}/certificate"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=custom-metrics",
                        "-keyout", files[0], "-out", files[1]],
                       check=True, stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files[1], files[0])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("serving", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
