/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_plugin.c: kubelet sends anything. The first byte of an input says what the rest is:
 *   0  bytes of a connection to the plugin (HTTP/2 as it comes)
 *   1  bytes that kubelet's socket answers with when the plugin registers
 *   2  the number of a method, then a message for it, sent as it should be: it must be answered
 * Whatever comes, the plugin must answer the next sound request.
 */
#include "cluster/service.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockd/base/log.h"

#define PIECE 1000 /* bytes at a time: frames come in pieces */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char spec[] =
    "{\"kind\": \"gpushare.dev/gpu\", \"containerEdits\": {\"env\": [\"A=b\", \"x\"], "
    "\"mounts\": "
    "[{\"hostPath\": \"/a\", \"containerPath\": \"/b\", \"options\": [\"ro\"]}]}, \"devices\": "
    "["
    "{\"name\": \"a\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/null\"}]}},"
    "{\"name\": \"b\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/zero\"}]}},"
    "{\"name\": \"c\", \"containerEdits\": {}}]}";

struct outcome {
    unsigned count;
    enum grpc_status status;
};

static struct plugin *the_plugin(void)
{
    static struct plugin plugin;
    struct gs_err err = {0};
    char path[32];
    int file;

    if (plugin.cards.count != 0)
        return &plugin;
    lockd_log_open(LOCKD_LOG_ERROR);
    plugin.set.resource = "gpushare.dev/gpu";
    file = memfd_create("specification", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, spec, strlen(spec)) < 0 || cards_read(&plugin.cards, path, 10, &err) != 0)
        abort();
    close(file);
    return &plugin;
}

static void take_outcome(void *context, enum grpc_status status, const char *text,
                         const uint8_t *message, size_t size)
{
    struct outcome *outcome = context;
    uint8_t sum = 0;

    for (size_t i = 0; i < size; i++) /* all of it can be read */
        sum ^= message[i];
    if (strlen(text) >= GRPC_TEXT_SIZE || (message == NULL && sum != 0))
        abort();
    outcome->count++;
    outcome->status = status;
}

/* Hands over what one side has to send. Whether it was anything. */
static bool move_bytes(struct grpc_link *from, struct grpc_link *to)
{
    struct gs_err err = {0};
    const uint8_t *bytes;
    bool any = false;
    ssize_t size;

    while ((size = grpc_link_take(from, &bytes)) > 0) {
        if (to != NULL)
            grpc_link_feed(to, bytes, (size_t)size, &err);
        any = true;
    }
    return any;
}

static void feed_pieces(struct grpc_link *link, const uint8_t *data, size_t size)
{
    struct gs_err err = {0};
    int code = 0;

    while (size != 0 && code == 0 && !grpc_link_is_done(link)) {
        const size_t piece = size < PIECE ? size : PIECE;
        uint8_t *copy = malloc(piece); /* its end is the end of what may be read */

        memcpy(copy, data, piece);
        code = grpc_link_feed(link, copy, piece, &err);
        free(copy);
        move_bytes(link, NULL);
        data += piece;
        size -= piece;
    }
}

static enum grpc_status ask_plugin(const char *path, const uint8_t *message, size_t size,
                                   bool ends)
{
    struct grpc_link *server = grpc_link_new(service_methods, the_plugin());
    struct grpc_link *client = grpc_link_new(NULL, NULL);
    struct outcome outcome = {0};

    if (server == NULL || client == NULL ||
        grpc_link_ask(client, path, message, size, take_outcome, &outcome) != 0)
        abort();
    while (move_bytes(client, server) | move_bytes(server, client))
        continue;
    if (ends && outcome.count != 1)
        abort();
    grpc_link_free(server);
    grpc_link_free(client);
    if (outcome.count != 1 || !lockd_list_empty(&the_plugin()->watchers))
        abort();
    return outcome.status;
}

static void fuzz_method(const uint8_t *data, size_t size)
{
    unsigned number = 0, wanted = size != 0 ? data[0] & 7 : 0;

    if (size == 0)
        return;
    while (number < wanted && service_methods[number + 1].path != NULL)
        number++;
    the_plugin()->set.answer = (data[0] & 8) != 0 ? ALLOCATE_MOUNTS : ALLOCATE_CDI;
    ask_plugin(service_methods[number].path, data + 1, size - 1,
               strstr(service_methods[number].path, "Watch") == NULL);
}

static void fuzz_server(const uint8_t *data, size_t size)
{
    struct grpc_link *link = grpc_link_new(service_methods, the_plugin());

    feed_pieces(link, data, size);
    grpc_link_free(link);
}

static void fuzz_client(const uint8_t *data, size_t size)
{
    struct grpc_link *link = grpc_link_new(NULL, NULL);
    struct outcome outcome = {0};

    if (grpc_link_ask(link, "/v1beta1.Registration/Register", "ab", 2, take_outcome,
                      &outcome) != 0)
        abort();
    move_bytes(link, NULL);
    feed_pieces(link, data, size);
    grpc_link_free(link);
    if (outcome.count != 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0)
        fuzz_server(data + 1, size - 1);
    else if (data[0] == 1)
        fuzz_client(data + 1, size - 1);
    else
        fuzz_method(data + 1, size - 1);
    if (ask_plugin("/v1beta1.DevicePlugin/GetDevicePluginOptions", NULL, 0, true) != GRPC_OK)
        abort();
    return 0;
}
