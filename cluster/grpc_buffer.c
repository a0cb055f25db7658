/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_buffer.c: see grpc_buffer.h. No state.
 */
#include "cluster/grpc_buffer.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_LEAST 256u

size_t grpc_buffer_left(const struct grpc_buffer *buffer)
{
    return buffer->size - buffer->start;
}

static int make_room(struct grpc_buffer *buffer, size_t size)
{
    size_t room = buffer->room != 0 ? buffer->room : ROOM_LEAST;
    uint8_t *grown;

    if (buffer->start != 0) {
        memmove(buffer->bytes, buffer->bytes + buffer->start, grpc_buffer_left(buffer));
        buffer->size -= buffer->start;
        buffer->start = 0;
    }
    while (room < buffer->size + size)
        room *= 2;
    if (room == buffer->room)
        return 0;
    grown = realloc(buffer->bytes, room);
    if (grown == NULL)
        return -ENOMEM;
    buffer->bytes = grown;
    buffer->room = room;
    return 0;
}

int grpc_buffer_add(struct grpc_buffer *buffer, const void *bytes, size_t size, size_t most)
{
    const size_t left = grpc_buffer_left(buffer);

    if (left > most || size > most - left)
        return -EMSGSIZE;
    if (size == 0)
        return 0;
    if (size > buffer->room - buffer->size && make_room(buffer, size) != 0)
        return -ENOMEM;
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return 0;
}

int grpc_buffer_add_message(struct grpc_buffer *buffer, const void *bytes, size_t size,
                            size_t most)
{
    const uint8_t head[GRPC_HEAD] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                     (uint8_t)(size >> 8), (uint8_t)size};
    const size_t left = grpc_buffer_left(buffer);
    int code;

    if (most < GRPC_HEAD || left > most - GRPC_HEAD || size > most - GRPC_HEAD - left)
        return -EMSGSIZE;
    code = make_room(buffer, size + GRPC_HEAD);
    if (code == 0)
        code = grpc_buffer_add(buffer, head, GRPC_HEAD, most);
    return code == 0 ? grpc_buffer_add(buffer, bytes, size, most) : code;
}

void grpc_buffer_drop(struct grpc_buffer *buffer, size_t size)
{
    buffer->start += size;
    if (buffer->start == buffer->size)
        grpc_buffer_deinit(buffer); /* between two calls nothing is kept */
}

size_t grpc_buffer_take(struct grpc_buffer *buffer, void *bytes, size_t size)
{
    const size_t left = grpc_buffer_left(buffer), taken = size < left ? size : left;

    if (taken != 0)
        memcpy(bytes, buffer->bytes + buffer->start, taken);
    grpc_buffer_drop(buffer, taken);
    return taken;
}

int grpc_buffer_message(const struct grpc_buffer *buffer, const uint8_t **message, size_t *size)
{
    const size_t left = grpc_buffer_left(buffer);
    const uint8_t *head;
    size_t length;

    if (left < GRPC_HEAD)
        return -EBADMSG;
    head = buffer->bytes + buffer->start;
    length = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    if (head[0] == 1)
        return -EOPNOTSUPP;
    if (head[0] != 0 || length != left - GRPC_HEAD)
        return -EBADMSG;
    *message = head + GRPC_HEAD;
    *size = length;
    return 0;
}

void grpc_buffer_deinit(struct grpc_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct grpc_buffer){0};
}

#define STATUS_MOST    16
#define STATUS_UNKNOWN 2

unsigned grpc_text_status(const uint8_t *digits, size_t length)
{
    unsigned number = 0;

    for (size_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9' || i == 2)
            return STATUS_UNKNOWN;
        number = number * 10 + (unsigned)(digits[i] - '0');
    }
    return length != 0 && number <= STATUS_MOST ? number : STATUS_UNKNOWN;
}

void grpc_text_encode(const char *text, char *encoded)
{
    size_t used = 0;

    for (; *text != '\0' && used + 4 < GRPC_TEXT_SIZE; text++) {
        const unsigned char byte = (unsigned char)*text;

        if (byte >= ' ' && byte < 0x7f && byte != '%')
            encoded[used++] = *text;
        else
            used += (size_t)snprintf(encoded + used, GRPC_TEXT_SIZE - used, "%%%02X", byte);
    }
    encoded[used] = '\0';
}

static int digit_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

void grpc_text_decode(const uint8_t *encoded, size_t length, char *text)
{
    size_t used = 0;

    for (size_t i = 0; i < length && used + 1 < GRPC_TEXT_SIZE; i++) {
        const int high = i + 2 < length ? digit_of(encoded[i + 1]) : -1,
                  low = i + 2 < length ? digit_of(encoded[i + 2]) : -1;

        if (encoded[i] == '%' && high >= 0 && low >= 0) {
            text[used++] = (char)(high * 16 + low);
            i += 2;
        } else {
            text[used++] = (char)encoded[i];
        }
    }
    text[used] = '\0';
    lockd_text_clean(text, GRPC_TEXT_SIZE);
}
