/* SPDX-License-Identifier: Apache-2.0
 *
 * wire_check.h: checks bytes from a socket before they are used; the names of the protocol's numbers.
 */
#pragma once

#include "common/err.h"
#include "lockd/protocol/wire.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The largest number that the daemon accepts: more than any machine has, and small enough that
 * no sum over clients overflows. */
#define LOCKD_BYTES_MAX (1ull << 48)

union lockd_message {
    struct gs_wire_header header;
    struct gs_wire_hello hello;
    struct gs_wire_state state;
    struct gs_wire_note note;
    struct gs_wire_kin kin;
    struct gs_wire_target target;
    struct gs_wire_open open;
    struct gs_wire_share share;
    struct gs_wire_copy copy;
    struct gs_wire_wish wish;
    struct gs_wire_sees sees;
    struct gs_wire_move move;
    struct gs_wire_relocate relocate;
    struct gs_wire_control control;
    struct gs_wire_daemon daemon;
    struct gs_wire_device device;
    struct gs_wire_client client;
    struct gs_wire_totals totals;
    struct gs_wire_remark remark;
    struct gs_wire_end end;
    struct gs_wire_trace trace;
    struct gs_wire_event event;
    struct gs_wire_get get;
    struct gs_wire_account account;
    struct gs_wire_setting setting;
};

/* Size of a message of that type, 0 for an unknown type. */
size_t lockd_wire_size(unsigned type);
/* Fills in the header, and leaves the rest of the message alone. */
void lockd_wire_header(struct gs_wire_header *header, enum gs_wire_type type);
/* The last message of an answer: a code, the number of messages before it, and a text. */
struct gs_wire_end lockd_wire_end(int code, uint32_t count, const char *format, va_list ap)
    __attribute__((format(printf, 3, 0)));
/* Checks a message of `size` bytes as received: magic, version, type, length, ranges; cleans
 * its texts (text.h). 0, or -EBADMSG / -EPROTONOSUPPORT with
 * what is wrong in err. */
int lockd_wire_check(union lockd_message *message, size_t size, struct gs_err *err);

#define LOCKD_UUID_SIZE 41

/* "fair", "fifo", "rr", "priority"; NULL for other numbers. */
const char *lockd_policy_name(uint32_t policy);
/* "pause" and so on; NULL for other numbers than those of enum gs_control_op. */
const char *lockd_operation_name(uint32_t op);
/* "auto", "interactive", "batch", "background", as in settings.def. */
const char *lockd_class_name(uint32_t class_number);
/* The reason why programs are a gang (enum gs_kin_kind), as a word; NULL: there is none. */
const char *lockd_kin_name(uint32_t kind);
/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi -L writes the 16 bytes of a UUID. */
char *lockd_uuid_text(const uint8_t *uuid, char *buffer);
/* Reads the 16 bytes of such a text, or of one that begins with "MIG-"; in letters of any size,
 * with '-' anywhere between the digits. */
bool lockd_uuid_read(const char *text, uint8_t *uuid);
