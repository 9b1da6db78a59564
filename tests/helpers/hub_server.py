"""Local Hub server for tests that push with the real `huggingface_hub` client (without xet)."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN, USER = "hf_tokenForTheTests0123456789", "me"


class Repo:
    """Repository; `branches[branch][path]` is the content of a file."""

    def __init__(self, private=False):
        self.private = private
        self.branches = {"main": {}}

    @property
    def files(self):
        return self.branches["main"]


class Hub(ThreadingHTTPServer):
    """Hub server; if `failing` is true, it returns status 500 for every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos, self.objects, self.failing = {}, {}, False

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.failing:
            return self.respond(500, {"error": "simulated failure"})
        for pattern, route in ROUTES.items():
            match = re.fullmatch(pattern, path)
            if match is None:
                continue
            if route not in (put, validate) and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.respond(401, {"error": "Invalid credentials in Authorization header"})
            return self.respond(*route(self.server, body, *match.groups()))
        return self.respond(404, {"error": f"page not found: {path}"})

    do_POST = do_PUT = do_GET

    def respond(self, status, content=None):
        body = json.dumps(content or {}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def create(hub, body):
    request = json.loads(body)
    name = f"{request.get('organization') or USER}/{request['name']}"
    if not name.startswith(f"{USER}/"):
        return 403, {"error": "You don't have the rights to create a model under this namespace"}
    status = 409 if name in hub.repos else 200
    hub.repos.setdefault(name, Repo(request.get("visibility") == "private" or request.get("private") is True))
    return status, {"url": f"{hub.url}/{name}", "name": name}


def info(hub, body, name):
    if name not in hub.repos:
        return 404, {"error": "Repository not found"}
    return 200, {"id": name, "modelId": name, "private": hub.repos[name].private, "tags": [], "siblings": []}


def branch(hub, body, name, branch):
    hub.repos[name].branches.setdefault(branch, {})
    return 200, {}


def preupload(hub, body, name, revision):
    modes = {True: "lfs", False: "regular"}
    paths = [file["path"] for file in json.loads(body)["files"]]
    return 200, {"files": [{"path": path, "uploadMode": modes[path.endswith((".safetensors", ".png"))],
                            "shouldIgnore": False} for path in paths]}  # fmt: skip


def batch(hub, body, name):
    objects = json.loads(body)["objects"]
    for entry in objects:
        entry["actions"] = {"upload": {"href": f"{hub.url}/lfs/{entry['oid']}"}}
    return 200, {"transfer": "basic", "objects": objects}


def validate(hub, body):
    return 200, {"errors": [], "warnings": []}


def put(hub, body, oid):
    assert hashlib.sha256(body).hexdigest() == oid
    hub.objects[oid] = body
    return 200, {}


def commit(hub, body, name, revision):
    for line in map(json.loads, body.splitlines()):
        value = line["value"]
        if line["key"] == "file":
            hub.repos[name].branches[revision][value["path"]] = base64.b64decode(value["content"])
        elif line["key"] == "lfsFile":
            hub.repos[name].branches[revision][value["path"]] = hub.objects[value["oid"]]
    return 200, {"commitUrl": f"{hub.url}/{name}/commit/0", "commitOid": "0"}


ROUTES = {
    "/api/repos/create": create,
    "/api/validate-yaml": validate,
    "/api/models/([^/]+/[^/]+)": info,
    "/api/models/([^/]+/[^/]+)/branch/(.+)": branch,
    "/api/models/([^/]+/[^/]+)/preupload/(.+)": preupload,
    r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch": batch,
    "/lfs/([0-9a-f]+)": put,
    "/api/models/([^/]+/[^/]+)/commit/(.+)": commit,
}
