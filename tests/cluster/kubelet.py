# SPDX-License-Identifier: Apache-2.0
"""A kubelet as a device plugin sees it: gRPC by grpcio, and the messages of the device plugin API v1beta1 and the pod
resources API v1 written down a second time, so that a wrong number in the plugin's .proto is found."""
import os
import queue
import sys
import threading
import time
from concurrent import futures

try:
    import grpc
    grpc.server  # pylint: disable=pointless-statement  # a folder of that name is no module
except (ImportError, AttributeError):  # Debian's module is Debian's Python's
    grpc = None

PATIENCE = 120.0


def need_grpc():
    """Runs the script again by the Python that has grpcio. Without any: the reason, and exit status 77."""
    if grpc is not None:
        return
    system = "/usr/bin/python3"
    if os.path.realpath(sys.executable) != os.path.realpath(system) and os.path.exists(system):
        os.execv(system, [system, *sys.argv])
    print("grpcio is not installed (python3-grpcio): there is no kubelet to test with")
    sys.exit(77)


# --- messages: {field: (number, kind)}; a kind is str, int, bool, or another such table; in a list if repeated ---
PAIR = {"key": (1, str), "value": (2, str)}
OPTIONS = {"pre_start_required": (1, bool), "get_preferred_allocation_available": (2, bool)}
REGISTER = {"version": (1, str), "endpoint": (2, str), "resource_name": (3, str), "options": (4, OPTIONS)}
DEVICES = {"devices": (1, [{"ID": (1, str), "health": (2, str)}])}
PREFERRED = {"container_requests": (1, [{"available_deviceIDs": (1, [str]), "must_include_deviceIDs": (2, [str]),
                                         "allocation_size": (3, int)}])}
PREFERRED_ANSWER = {"container_responses": (1, [{"deviceIDs": (1, [str])}])}
ALLOCATE = {"container_requests": (1, [{"devices_ids": (1, [str])}])}
ALLOCATE_ANSWER = {"container_responses": (1, [{
    "envs": (1, [PAIR]), "mounts": (2, [{"container_path": (1, str), "host_path": (2, str), "read_only": (3, bool)}]),
    "devices": (3, [{"container_path": (1, str), "host_path": (2, str), "permissions": (3, str)}]),
    "annotations": (4, [PAIR]), "cdi_devices": (5, [{"name": (1, str)}])}])}
PRE_START = {"devices_ids": (1, [str])}
ALLOCATABLE = {"devices": (1, [{"resource_name": (1, str), "device_ids": (2, [str])}])}
EMPTY = {}


def varint(number):
    out = b""
    number &= (1 << 64) - 1
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def pack(table, values):
    out = b""
    for name, value in values.items():
        number, kind = table[name]
        repeated = isinstance(kind, list)
        for each in value if repeated else [value]:
            inner = kind[0] if repeated else kind
            if inner in (int, bool):
                out += varint(number << 3) + varint(int(each))
                continue
            body = each.encode() if inner is str else pack(inner, each)
            out += varint(number << 3 | 2) + varint(len(body)) + body
    return out


def take_varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def unpack(table, data):
    """A dictionary with every field; a field that the table does not have is an error."""
    values = {name: [] if isinstance(kind, list) else None if isinstance(kind, dict) else kind() for name, (_, kind) in table.items()}
    by_number = {number: (name, kind) for name, (number, kind) in table.items()}
    at = 0
    while at < len(data):
        key, at = take_varint(data, at)
        name, kind = by_number[key >> 3]
        inner = kind[0] if isinstance(kind, list) else kind
        if key & 7 == 0:
            value, at = take_varint(data, at)
            value = inner(value)
        else:
            assert key & 7 == 2, f"{name} has the wire type {key & 7}"
            size, at = take_varint(data, at)
            body, at = data[at:at + size], at + size
            assert len(body) == size, f"{name} ends too early"
            value = body.decode() if inner is str else unpack(inner, body)
        if isinstance(kind, list):
            values[name].append(value)
        else:
            values[name] = value
    return values


def same(data):
    return data


class Plugin:
    """kubelet's connection to a plugin: one watch, and the calls."""

    def __init__(self, path):
        self.channel = grpc.insecure_channel("unix:" + path, options=[("grpc.max_receive_message_length", -1)])
        self.lists = queue.Queue()
        self.watch = None

    def call(self, method, table, values, answer, timeout=PATIENCE):
        function = self.channel.unary_unary("/v1beta1.DevicePlugin/" + method, request_serializer=same, response_deserializer=same)
        return unpack(answer, function(pack(table, values), timeout=timeout))

    def allocate(self, *containers):
        return self.call("Allocate", ALLOCATE, {"container_requests": [{"devices_ids": list(ids)} for ids in containers]},
                         ALLOCATE_ANSWER)["container_responses"]

    def prefer(self, available, size, must=()):
        answer = self.call("GetPreferredAllocation", PREFERRED, {"container_requests": [
            {"available_deviceIDs": list(available), "must_include_deviceIDs": list(must), "allocation_size": size}]}, PREFERRED_ANSWER)
        return answer["container_responses"][0]["deviceIDs"]

    def start_watch(self):
        function = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", request_serializer=same, response_deserializer=same)
        self.watch = function(b"")

        def read():
            try:
                for data in self.watch:
                    self.lists.put({each["ID"]: each["health"] for each in unpack(DEVICES, data)["devices"]})
                self.lists.put("end")
            except grpc.RpcError as error:
                self.lists.put(error)

        threading.Thread(target=read, daemon=True).start()

    def next_list(self):
        return self.lists.get(timeout=PATIENCE)

    def close(self):
        self.channel.close()


class Kubelet:
    """The other side: removes what is in its folder when it starts, as kubelet does, and takes registrations."""

    def __init__(self, folder):
        self.folder = folder
        self.server = None
        self.registered = queue.Queue()
        self.refuse = None  # (code, text) of the next registration

    def start(self):
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        self.registered = queue.Queue()

        def register(data, context):
            if self.refuse is not None:
                code, text = self.refuse
                self.refuse = None
                context.abort(code, text)
            self.registered.put(unpack(REGISTER, data))
            return b""

        handlers = {"Register": grpc.unary_unary_rpc_method_handler(register, request_deserializer=same, response_serializer=same)}
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", handlers),))
        self.server.add_insecure_port("unix:" + os.path.join(self.folder, "kubelet.sock"))
        self.server.start()

    def next_registration(self, what=lambda: "no plugin registers"):
        try:
            return self.registered.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(what()) from None

    def plugin(self):
        """Waits for the next registration, and connects as kubelet does."""
        asked = self.next_registration()
        plugin = Plugin(os.path.join(self.folder, asked["endpoint"]))
        plugin.asked = asked
        plugin.start_watch()
        return plugin

    def stop(self):
        if self.server is not None:
            self.server.stop(None).wait()
        self.server = None


class PodResources:
    """kubelet's other socket: which devices all plugins have."""

    def __init__(self, path, devices):
        handlers = {"GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
            lambda data, context: pack(ALLOCATABLE, {"devices": [{"resource_name": name, "device_ids": ids} for name, ids in devices]}),
            request_deserializer=same, response_serializer=same)}
        self.server = grpc.server(futures.ThreadPoolExecutor(1))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        self.server.add_insecure_port("unix:" + path)
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()


def wait_for(true, what):
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, what()
        time.sleep(0.02)
