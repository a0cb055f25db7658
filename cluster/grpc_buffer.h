/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_buffer.h: bytes that grow at one end and are taken from the other; messages of gRPC in
 * them, each with its five bytes in front.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GRPC_HEAD 5 /* a flag, then the length, big-endian */

struct grpc_buffer {
    uint8_t *bytes;
    size_t start, size, room; /* what is there: bytes[start] up to bytes[size - 1] */
};

/* 0, -ENOMEM, or -EMSGSIZE: more than `most` bytes would be there. */
int grpc_buffer_add(struct grpc_buffer *buffer, const void *bytes, size_t size, size_t most);
/* The same with a message's head in front. */
int grpc_buffer_add_message(struct grpc_buffer *buffer, const void *bytes, size_t size,
                            size_t most);
/* Copies at most `size` bytes out and forgets them. Their number. */
size_t grpc_buffer_take(struct grpc_buffer *buffer, void *bytes, size_t size);
/* Forgets so many of the first bytes. */
void grpc_buffer_drop(struct grpc_buffer *buffer, size_t size);
size_t grpc_buffer_left(const struct grpc_buffer *buffer);
/* The one message that makes up the whole buffer. 0; -EBADMSG: it is not whole, or not the
 * only one; -EOPNOTSUPP: it is compressed. */
int grpc_buffer_message(const struct grpc_buffer *buffer, const uint8_t **message,
                        size_t *size);
void grpc_buffer_deinit(struct grpc_buffer *buffer);

/* The text of an error as gRPC sends it, with the bytes that no header may have as %XX. */

#define GRPC_TEXT_SIZE 512 /* bytes, with the zero; a longer text is cut */

/* The number of a status; 2 (unknown), if it is none. */
unsigned grpc_text_status(const uint8_t *digits, size_t length);
/* encoded: GRPC_TEXT_SIZE bytes. */
void grpc_text_encode(const char *text, char *encoded);
/* text: GRPC_TEXT_SIZE bytes; it becomes valid UTF-8 without control characters. */
void grpc_text_decode(const uint8_t *encoded, size_t length, char *text);
