#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CuPy, cuda.core and cuda.bindings ask of memory pools and graphs in their own tests, and were answered differently with gpushare.

library_answers.py: one line an answer, without addresses; the lines must be the same patched. A library that is missing has a line, too.
"""
import sys


def say(what, *values):
    print(f"{what}: {' '.join(map(str, values))}", flush=True)


def cupy_pool(cupy):
    """The statistics of a pool in stream order, as in CuPy's tests of MemoryAsyncPool: differences, since others may have used the pool before."""
    pool, unit, stream = cupy.cuda.MemoryAsyncPool(), 512, cupy.cuda.Stream()
    cupy.get_default_memory_pool().free_all_blocks()
    pool.free_all_blocks()
    used, total = pool.used_bytes(), pool.total_bytes()

    def state(when):
        say(f"cupy pool, {when}", "used", pool.used_bytes() - used, "free", pool.free_bytes(), "total", pool.total_bytes() - total,
            "sum" if pool.used_bytes() + pool.free_bytes() == pool.total_bytes() else "no sum")

    state("empty")
    first = pool.malloc(unit * 2)
    state("2 units")
    second = pool.malloc(unit * 4)
    state("6 units")
    del second
    state("2 units again")
    del first
    state("none")
    third = pool.malloc(unit)
    state("1 unit")
    del third
    pool.free_all_blocks()
    state("trimmed")
    with stream:
        fourth = pool.malloc(unit * 2)
    state("on a stream")
    del fourth
    pool.free_all_blocks()
    state("trimmed again")
    for bytes_ in (1, 100, 513, 5000, 70001):
        memory = pool.malloc(bytes_)
        state(f"{bytes_} bytes")
        del memory
    say("cupy pool, limit", pool.get_limit())


def core_resource(core):
    """Pools with a greatest size."""
    device = core.Device()
    device.set_current()
    for most in (1, 2097152, 33 << 20):
        resource = core.DeviceMemoryResource(device, options=core.DeviceMemoryResourceOptions(max_size=most))
        say("cuda.core pool", most, resource.is_device_accessible, resource.is_host_accessible, resource.is_ipc_enabled)
        stream = device.create_stream()
        for bytes_ in (1024, 2048, 1 << 20, 40 << 20, 80 << 20):
            try:
                buffer = resource.allocate(bytes_, stream=stream)
                say("  allocate", bytes_, buffer.size, buffer.handle != 0)
                buffer.close(stream)
            except Exception as error:  # what the library makes of the driver's answer is what is compared
                say("  allocate", bytes_, type(error).__name__, error)
            stream.sync()
        attributes = resource.attributes
        for name in ("reuse_follow_event_dependencies", "release_threshold", "reserved_mem_current", "reserved_mem_high", "used_mem_current",
                     "used_mem_high"):
            say("  attribute", name, getattr(attributes, name, "missing"))


def bindings_graph(driver):
    """Graph nodes by parameters of any kind, as in cuda.bindings' test of them."""
    import numpy

    def check(what, result):
        say(f"graph, {what}", int(result[0]))
        return result[1] if len(result) == 2 else None

    check("init", driver.cuInit(0))
    context = check("context", driver.cuDevicePrimaryCtxRetain(0))
    check("current", driver.cuCtxSetCurrent(context))
    stream, size = check("stream", driver.cuStreamCreate(0)), 1024
    buffers = [(numpy.full(size, 2, numpy.uint8), check("allocation", driver.cuMemAlloc(size))) for _ in range(2)]
    for host, device in buffers:
        check("copy in", driver.cuMemcpyHtoD(device, host, size))
    graph = check("create", driver.cuGraphCreate(0))
    fill = driver.CUgraphNodeParams()
    fill.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
    fill.memset.elementSize, fill.memset.width, fill.memset.height, fill.memset.dst, fill.memset.value = 1, size, 1, buffers[0][1], 1
    add = driver.cuGraphAddNode
    fill_node = check("add a fill", add(graph, None, None, 0, fill))
    copy = driver.CUgraphNodeParams()
    copy.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    params = copy.memcpy.copyParams
    params.srcMemoryType, params.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, driver.CUmemorytype.CU_MEMORYTYPE_HOST
    params.srcDevice, params.dstHost = buffers[1][1], buffers[1][0]
    params.WidthInBytes, params.Height, params.Depth = size, 1, 1
    copy_node = check("add a copy", add(graph, None, None, 0, copy))
    executable = check("instantiate", driver.cuGraphInstantiate(graph, 0))

    def launch(when):
        check(f"launch {when}", driver.cuGraphLaunch(executable, stream))
        check(f"wait {when}", driver.cuStreamSynchronize(stream))
        for host, device in buffers:
            check("copy out", driver.cuMemcpyDtoH(host, device, size))
            say("graph, contents", host.min(), host.max())

    launch("first")
    params.srcDevice = buffers[0][1]
    check("set the copy", driver.cuGraphNodeSetParams(copy_node, copy))
    got = check("get the copy", driver.cuGraphMemcpyNodeGetParams(copy_node))
    say("graph, its source", got is not None and int(got.srcDevice) == int(buffers[0][1]))
    fill.memset.value = 11
    check("set the fill", driver.cuGraphExecNodeSetParams(executable, fill_node, fill))
    launch("again")
    for kind in (driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY, driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH,
                 driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EVENT_RECORD):
        other = driver.CUgraphNodeParams()
        other.type = kind
        if kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH:
            other.graph.graph = check("a child", driver.cuGraphCreate(0))
        if kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            other.eventRecord.event = check("an event", driver.cuEventCreate(0))
        check(f"add a node of kind {int(kind)}", add(graph, None, None, 0, other))
    check("destroy", driver.cuGraphExecDestroy(executable))
    check("destroy", driver.cuGraphDestroy(graph))
    for _, device in buffers:
        check("free", driver.cuMemFree(device))


def load(name, *paths):
    for path in paths:
        try:
            module = __import__(path, fromlist=["_"])
            if name != "cuda.core" or hasattr(module, "DeviceMemoryResource"):
                return module
        except ImportError:
            pass
    say(name, "missing")
    return None


def main():
    for name, paths, ask in (("cuda.bindings", ["cuda.bindings.driver"], bindings_graph), ("cupy", ["cupy"], cupy_pool),
                             ("cuda.core", ["cuda.core", "cuda.core.experimental"], core_resource)):
        module = load(name, *paths)
        if module is None:
            continue
        try:
            ask(module)
        except Exception as error:  # a line like the others: it must be the same patched
            say(name, "ends with", type(error).__name__, error)


if __name__ == "__main__":
    sys.exit(main())
