"""A local Hub to which the real `huggingface_hub` client can push models, without xet.

Repositories, branches, preupload, the LFS batch API, verification, commits. It is strict: a commit whose LFS object is
missing, or whose content does not match its hash, is an error.
"""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

TOKEN, USER = "hf_tokenForTheTests0123456789", "me"
LFS_SUFFIXES = (".safetensors", ".png")


class Repo:
    """A repository: `branches` maps a branch to path -> content; `commits` are (branch, message, files then)."""

    def __init__(self, private=False, card=None):
        self.private, self.card = private, card
        self.branches, self.commits = {"main": {}}, []

    @property
    def files(self):
        return self.branches["main"]

    def sha(self):
        return hashlib.sha1(str(len(self.commits)).encode()).hexdigest()


class Fault:
    """What the next `times` requests of `method` to a path get: a status, or an event to wait for."""

    def __init__(self, method, path, what, times=1):
        self.method, self.path, self.what, self.times = method, re.compile(path), what, times


class Hub(ThreadingHTTPServer):
    """The server. `requests` counts (method, kind of request); `uploads`, the bytes sent for each LFS object."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos, self.objects, self.faults = {}, {}, []
        self.requests, self.uploads = Counter(), Counter()
        self.lock = threading.Lock()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Ignores clients that went away."""

    def fail(self, method, path, what, times=1):
        self.faults.append(Fault(method, path, what, times))

    def fault_for(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and fault.path.search(path):
                    fault.times -= 1
                    return fault.what
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.handle_one("GET")

    def do_POST(self):
        self.handle_one("POST")

    def do_PUT(self):
        self.handle_one("PUT")

    def handle_one(self, method):
        path = unquote(urlsplit(self.path).path)
        what = self.server.fault_for(method, path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if isinstance(what, threading.Event):
            what = None if what.wait(60) else 500
        if what is not None:
            self.answer(what, {"error": f"the test wants {what}"})
            return
        for route_method, pattern, name, is_open in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and route_method == method:
                self.server.requests[method, name] += 1
                if not is_open and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self.answer(401, {"error": "Invalid credentials in Authorization header"})
                    return
                with self.server.lock:
                    getattr(self, name)(body, *match.groups())
                return
        self.answer(404, {"error": f"no such page: {path}"})

    def answer(self, status, content=None, headers=()):
        body = json.dumps(content or {}).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", len(body)), *headers):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def repo(self, name):
        found = self.server.repos.get(name)
        if found is None:
            self.answer(404, {"error": "Repository not found"}, [("X-Error-Code", "RepoNotFound")])
        return found

    # Repositories

    def create(self, body):
        wanted = json.loads(body)
        name = f"{wanted['organization'] or USER}/{wanted['name']}"
        url = {"url": f"{self.server.url}/{name}", "name": name}
        if not name.startswith(f"{USER}/"):
            self.answer(403, {"error": "You don't have the rights to create a model under this namespace"})
        elif name in self.server.repos:
            self.answer(409, {"error": "You already created this model repo", **url})
        else:
            self.server.repos[name] = Repo(wanted.get("visibility") == "private" or wanted.get("private") is True)
            self.answer(200, url)

    def info(self, body, name):
        repo = self.repo(name)
        if repo is not None:
            content = {
                "id": name,
                "modelId": name,
                "private": repo.private,
                "sha": repo.sha(),
                "cardData": repo.card or {},
            }
            self.answer(200, {**content, "tags": [], "siblings": [{"rfilename": path} for path in repo.files]})

    def tree(self, body, name, revision):
        repo = self.repo(name)
        if repo is not None:
            files = repo.branches[revision].items()
            entries = [{"type": "file", "path": path, "size": len(of), "oid": git_hash(of)} for path, of in files]
            self.answer(200, entries)

    def branch(self, body, name, branch):
        repo = self.repo(name)
        if repo is not None:
            status = 409 if branch in repo.branches else 200
            repo.branches.setdefault(branch, dict(repo.files))
            self.answer(status, {})

    def validate(self, body):
        content = json.loads(body)["content"]
        parts = content.split("---\n")
        try:
            data = yaml.safe_load(parts[1]) if content.startswith("---\n") and len(parts) > 2 else {}
            errors = [] if isinstance(data, dict) else [{"message": "the metadata is not a mapping"}]
        except yaml.YAMLError as error:
            errors = [{"message": str(error)}]
        self.answer(400 if errors else 200, {"errors": errors, "warnings": []})

    # An upload

    def preupload(self, body, name, revision):
        repo = self.repo(name)
        if repo is None:
            return
        files = []
        for file in json.loads(body)["files"]:
            is_lfs = file["path"].endswith(LFS_SUFFIXES)
            old = repo.branches[revision].get(file["path"])
            oid = None if old is None else hashlib.sha256(old).hexdigest() if is_lfs else git_hash(old)
            mode = "lfs" if is_lfs else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.answer(200, {"files": files})

    def batch(self, body, name):
        objects = []
        for wanted in json.loads(body)["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            entry = {"oid": oid, "size": size}
            if oid not in self.server.objects:
                places = {"upload": f"lfs/{oid}", "verify": "verify"}
                entry["actions"] = {name: {"href": f"{self.server.url}/{place}"} for name, place in places.items()}
            objects.append(entry)
        self.answer(200, {"transfer": "basic", "objects": objects})

    def put(self, body, oid):
        self.server.uploads[oid] += len(body)
        if hashlib.sha256(body).hexdigest() != oid:
            self.answer(400, {"error": "the content does not match its hash"})
            return
        self.server.objects[oid] = body
        self.answer(200)

    def verify(self, body):
        wanted = json.loads(body)
        content = self.server.objects.get(wanted["oid"])
        self.answer(200 if content is not None and len(content) == wanted["size"] else 404)

    def commit(self, body, name, revision):
        repo = self.repo(name)
        if repo is None:
            return
        lines = [json.loads(line) for line in body.splitlines()]
        new, message = {}, ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
            elif line["key"] == "file":
                new[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del repo.branches[revision][value["path"]]
            elif value["oid"] not in self.server.objects:
                self.answer(400, {"error": f"{value['path']}: no such LFS object"})
                return
            else:
                new[value["path"]] = self.server.objects[value["oid"]]
        repo.branches[revision].update(new)
        repo.commits.append((revision, message, dict(repo.branches[revision])))
        oid = repo.sha()
        self.answer(200, {"commitUrl": f"{self.server.url}/{name}/commit/{oid}", "commitOid": oid})


def git_hash(content):
    """git's hash of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


REPO = r"([^/]+/[^/]+?)"
# Method, path, handler, whether it needs no token: S3's addresses carry their own signature.
ROUTES = [
    ("POST", "/api/repos/create", "create", False),
    ("GET", f"/api/models/{REPO}(?:/revision/.+)?", "info", False),
    ("GET", f"/api/models/{REPO}/tree/(.+)", "tree", False),
    ("POST", f"/api/models/{REPO}/branch/(.+)", "branch", False),
    ("POST", "/api/validate-yaml", "validate", True),
    ("POST", f"/api/models/{REPO}/preupload/(.+)", "preupload", False),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", "batch", False),
    ("PUT", "/lfs/([0-9a-f]+)", "put", True),
    ("POST", "/verify", "verify", False),
    ("POST", f"/api/models/{REPO}/commit/(.+)", "commit", False),
]
