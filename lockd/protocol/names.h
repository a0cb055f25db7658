/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: the names of the protocol's numbers, for people and in files.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "fair", "fifo", "rr", "priority"; NULL for other numbers. */
const char *lockd_policy_name(uint32_t policy);
/* "pause" and so on; NULL for other numbers than those of enum gs_control_op. */
const char *lockd_operation_name(uint32_t op);

/* "auto", "interactive", "batch", "background", as in settings.def. */
const char *lockd_class_name(uint32_t class_number);

/* The reason why programs are a gang (enum gs_kin_kind), as a word; NULL: there is none. */
const char *lockd_kin_name(uint32_t kind);

#define LOCKD_UUID_SIZE 41
/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi -L writes the 16 bytes of a UUID. */
char *lockd_uuid_text(const uint8_t *uuid, char *buffer);
/* Reads the 16 bytes of such a text, or of one that begins with "MIG-"; in letters of any size,
 * with '-' anywhere between the digits. */
bool lockd_uuid_read(const char *text, uint8_t *uuid);
