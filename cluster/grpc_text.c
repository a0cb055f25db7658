/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_text.c: see grpc_text.h. No state.
 */
#include "cluster/grpc_text.h"

#include <stdio.h>

#include "lockd/base/text.h"

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
