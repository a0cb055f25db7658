/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_text.h: the text of an error as gRPC sends it, with the bytes that no header may have as
 * %XX.
 */
#ifndef GS_CLUSTER_GRPC_TEXT_H
#define GS_CLUSTER_GRPC_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define GRPC_TEXT_SIZE 512 /* bytes, with the zero; a longer text is cut */

/* The number of a status; 2 (unknown), if it is none. */
unsigned grpc_text_status(const uint8_t *digits, size_t length);
/* encoded: GRPC_TEXT_SIZE bytes. */
void grpc_text_encode(const char *text, char *encoded);
/* text: GRPC_TEXT_SIZE bytes; it becomes valid UTF-8 without control characters. */
void grpc_text_decode(const uint8_t *encoded, size_t length, char *text);

#endif
